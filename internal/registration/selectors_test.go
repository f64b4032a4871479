package registration

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// TestBindingsNarrow evaluates each pair of selectors, of a policy and its binding,
// with the API server's matchers. All requests that both match must be sent, and
// others only if the webhook's selectors cannot exclude them.
func TestBindingsNarrow(t *testing.T) {
	o := newOracle(t, testNamespaces, testResources)
	requests := selectorRequests()
	selectors := testSelectors()
	spared := map[Phase]int{}
	for i, own := range selectors {
		for j, bound := range selectors {
			if testing.Short() && (i+j)%3 != 0 {
				continue
			}
			for name, match := range map[string]func(s *metav1.LabelSelector) *admissionregistrationv1.MatchResources{
				"namespaces": func(s *metav1.LabelSelector) *admissionregistrationv1.MatchResources {
					return &admissionregistrationv1.MatchResources{NamespaceSelector: s}
				},
				"objects": func(s *metav1.LabelSelector) *admissionregistrationv1.MatchResources {
					return &admissionregistrationv1.MatchResources{ObjectSelector: s}
				},
			} {
				t.Run(fmt.Sprintf("%s %d %d", name, i, j), func(t *testing.T) {
					for _, policy := range boundPolicies(match(own), match(bound)) {
						for phase, n := range checkNarrow(t, o, policy, requests) {
							spared[phase] += n
						}
					}
				})
			}
		}
	}
	for _, phase := range []Phase{PhaseMutate, PhaseValidate} {
		if spared[phase] < 100 {
			t.Errorf("phase %s: bindings spared %d calls, want more", phase, spared[phase])
		}
	}
}

// boundPolicies returns policies with bindings, which differ in resource, paramKind
// and number of bindings.
func boundPolicies(own, bound *admissionregistrationv1.MatchResources) []*v1alpha1.WebhookPolicy {
	match := func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.NamespaceSelector = own.NamespaceSelector
		p.Spec.MatchConstraints.ObjectSelector = own.ObjectSelector
		p.Spec.Bindings = []v1alpha1.Binding{{Name: "b", MatchResources: bound}}
		p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{"*"}
	}
	return []*v1alpha1.WebhookPolicy{
		policyFor("pods", "pods", doingBoth, match),
		policyFor("namespaces", "namespaces", doingBoth, match),
		policyFor("all", "*/*", doingBoth, match),
		policyFor("params", "pods", doingBoth, match, func(p *v1alpha1.WebhookPolicy) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		}),
		policyFor("twice", "pods", doingBoth, match, func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Bindings = append(p.Spec.Bindings, v1alpha1.Binding{Name: "c", MatchResources: &admissionregistrationv1.MatchResources{}})
		}),
	}
}

func checkNarrow(t *testing.T, o *oracle, policy *v1alpha1.WebhookPolicy, requests []admission.Attributes) map[Phase]int {
	t.Helper()
	spared := map[Phase]int{}
	for _, group := range Build(Input{Policies: []*v1alpha1.WebhookPolicy{policy}, Endpoint: testService, ExemptNamespaces: testExempt}).Groups {
		for _, attr := range requests {
			_, called := o.called(t, group.Configuration, attr)
			_, matches := o.matched(t, rulesOnly(policy, group.Phase), attr)
			bound := false
			for _, b := range policy.Spec.Bindings {
				bound = bound || o.binds(t, b, attr)
			}
			switch want := o.concerns(t, policy, group.Phase, attr); {
			case isExcluded(attr, policy):
			case matches && bound && !called:
				t.Errorf("%s: %s: policy %s and its binding match, but it is not called", group.Phase, describe(attr), policy.Name)
			case called != want:
				t.Errorf("%s: %s: policy %s: called %t, want %t", group.Phase, describe(attr), policy.Name, called, want)
			case matches && !called:
				spared[group.Phase]++
			}
		}
	}
	return spared
}

func testSelectors() []*metav1.LabelSelector {
	requirement := func(op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: op, Values: values}}}
	}
	return []*metav1.LabelSelector{
		nil,
		{},
		{MatchLabels: map[string]string{"tier": "prod"}},
		{MatchLabels: map[string]string{"tier": "test"}},
		requirement(metav1.LabelSelectorOpIn, "prod", "test"),
		requirement(metav1.LabelSelectorOpNotIn, "prod"),
		requirement(metav1.LabelSelectorOpDoesNotExist),
	}
}

// selectorRequests returns requests for objects with all combinations of old and new
// labels.
func selectorRequests() []admission.Attributes {
	labels := []map[string]string{{}, {"tier": "prod"}, {"tier": "test"}}
	var out []admission.Attributes
	for _, r := range testResources[:3] { // pods, namespaces and nodes
		for _, ns := range testNamespaces[:3] {
			namespace, name := ns.Name, "thing"
			switch {
			case r.resource == "namespaces":
				name = ns.Name
			case !r.namespaced:
				namespace = ""
			}
			for _, is := range labels {
				for _, was := range labels {
					out = append(out, r.attributes("v1", "", namespace, name, admission.Update, is, was))
				}
				for _, op := range []admission.Operation{admission.Create, admission.Delete} {
					out = append(out, r.attributes("v1", "", namespace, name, op, is, is))
				}
			}
		}
	}
	return out
}

func TestIntersectSelectors(t *testing.T) {
	labels := func(pairs ...string) metav1.LabelSelector {
		s := metav1.LabelSelector{MatchLabels: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			s.MatchLabels[pairs[i]] = pairs[i+1]
		}
		return s
	}
	expressions := func(keys ...string) metav1.LabelSelector {
		var s metav1.LabelSelector
		for _, key := range keys {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		}
		return s
	}
	conflict := labels("a", "1")
	conflict.MatchExpressions = labelIn("a", "2").MatchExpressions
	tests := map[string]struct{ a, b, want metav1.LabelSelector }{
		"both are empty":            {},
		"the second is empty":       {a: labels("a", "1"), want: labels("a", "1")},
		"the first is empty":        {b: expressions("a"), want: expressions("a")},
		"different labels":          {a: labels("a", "1"), b: labels("b", "2"), want: labels("a", "1", "b", "2")},
		"equal labels":              {a: labels("a", "1"), b: labels("a", "1"), want: labels("a", "1")},
		"contradictory labels":      {a: labels("a", "1"), b: labels("a", "2"), want: conflict},
		"expressions":               {a: expressions("b"), b: expressions("a", "b"), want: expressions("a", "b")},
		"an empty value":            {a: labels("a", ""), b: labels("a", ""), want: labels("a", "")},
		"a label and an expression": {a: labels("a", "1"), b: labelIn("a", "2"), want: conflict},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := tc.a.DeepCopy(), tc.b.DeepCopy()
			if diff := cmp.Diff(tc.want, intersectSelectors(tc.a, tc.b)); diff != "" {
				t.Errorf("intersection (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]*metav1.LabelSelector{a, b}, []*metav1.LabelSelector{&tc.a, &tc.b}); diff != "" {
				t.Errorf("intersectSelectors changed its arguments:\n%s", diff)
			}
		})
	}
}
