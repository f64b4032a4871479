package rehearsal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/kubernetes"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/validation"
)

func cluster(t *testing.T) Cluster {
	t.Helper()
	served, err := kubernetes.Resources(policy.LatestEngine)
	if err != nil {
		t.Fatal(err)
	}
	return Cluster{Served: served}
}

func newPolicy(expressions ...string) *v1alpha1.WebhookPolicy {
	all := []string{"*"}
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.WebhookPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: all, APIVersions: all, Resources: []string{"*/*"}},
			},
		}}},
	}}
	for _, e := range expressions {
		p.Spec.Validations = append(p.Spec.Validations, v1alpha1.Validation{Expression: e})
	}
	return p
}

// TestCostsAreBounded rehearses expressions that are as costly as they may be, for every kind.
func TestCostsAreBounded(t *testing.T) {
	numbers := strings.TrimSuffix(strings.Repeat("1, ", 40), ", ")
	loops := fmt.Sprintf("[%[1]s].all(a, [%[1]s].all(b, [%[1]s].all(c, a + b + c > 0)))", numbers)
	var expressions []string
	for i := range 20 {
		expressions = append(expressions, fmt.Sprintf("%s || %d > 0", loops, i))
	}
	r, err := New(policy.LatestEngine)
	if err != nil {
		t.Fatal(err)
	}
	p := newPolicy(expressions...)
	compiled, errs := r.compiler.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	c := cluster(t)
	targets, matched := targetsOf(&p.Spec, c.Served)
	if len(targets) != maxTargets || matched <= maxTargets {
		t.Errorf("%d targets of %d, want %d", len(targets), matched, maxTargets)
	}
	s := newStage(r, p, compiled, newReadings(r.compiler, &p.Spec), c)
	var out Result
	s.run(t.Context(), targets, &out)
	if s.cost < maxCost || s.cost > 3*maxCost {
		t.Errorf("the costs are %d, want them between %d and %d", s.cost, maxCost, 3*maxCost)
	}
	if out.Stopped != "the costs of the expressions reached the limit" {
		t.Errorf("got %+v, want the limit", out)
	}
}

func TestRehearsalEndsWithItsContext(t *testing.T) {
	r, err := New(policy.LatestEngine)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := r.Rehearse(ctx, newPolicy("object.metadata.labels.a == 'b'"), cluster(t))
	if len(got.Warnings) > 0 || got.Stopped != "the time for it ended" {
		t.Errorf("got %+v", got)
	}
}

// TestNothingServed keeps the condition Rehearsed from being True for a policy that nothing was
// evaluated for.
func TestNothingServed(t *testing.T) {
	p := newPolicy("object.spec.size < 5")
	rule := &p.Spec.MatchConstraints.ResourceRules[0]
	rule.APIGroups, rule.Resources = []string{"example.com"}, []string{"widgets"}
	r, err := New(policy.LatestEngine)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Omitted: []string{"none of the resources that the rules name is served"}}
	if diff := cmp.Diff(want, r.Rehearse(t.Context(), p, cluster(t))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLookups: lists are empty in a rehearsal, so an expression that reads one has no findings, and keys of requests have.
func TestLookups(t *testing.T) {
	lookup := func(requestKeys string) v1alpha1.Lookup {
		return v1alpha1.Lookup{Name: "l", StoredKeys: "[]", RequestKeys: requestKeys,
			Resource: v1alpha1.LookupResource{Version: "v1", Resource: "pods"}}
	}
	tests := map[string]struct {
		lookup     v1alpha1.Lookup
		validation string
		want       []string // warnings
	}{
		"an element that is not there": {lookup: lookup("[object.metadata.name]"), validation: `lookups.l[0].name == "a"`},
		"a list that has to have one":  {lookup: lookup("[object.metadata.name]"), validation: `lookups.l.size() > 0`},
		"keys that fail": {
			lookup: lookup("[object.metadata.labels.team]"), validation: `lookups.l.size() == 0`,
			want: []string{"spec.lookups[0].requestKeys: CREATE of configmaps can fail with \"no such key: labels\": " +
				"write object.metadata.?labels.?team.orValue(\"\")"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := New(policy.LatestEngine)
			if err != nil {
				t.Fatal(err)
			}
			p := newPolicy(tc.validation)
			p.Spec.Lookups = []v1alpha1.Lookup{tc.lookup}
			rule := &p.Spec.MatchConstraints.ResourceRules[0]
			rule.APIGroups, rule.Resources = []string{""}, []string{"configmaps"}
			rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
			got := r.Rehearse(t.Context(), p, cluster(t))
			var warnings []string
			for _, w := range got.Warnings {
				warnings = append(warnings, w.String())
			}
			if diff := cmp.Diff(tc.want, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			omitted := []string{"requests whose lookups find an object: every list is empty here"}
			if diff := cmp.Diff(omitted, got.Omitted); diff != "" {
				t.Errorf("omitted (-want +got):\n%s", diff)
			}
		})
	}
}

// A policy is rehearsed as it decides at the end of its rollouts, not with the actions of their first steps.
func TestRolloutIsRehearsedAtItsEnd(t *testing.T) {
	const never = `object.metadata.name == "a" && object.metadata.name == "b"`
	rehearser, err := New(policy.LatestEngine)
	if err != nil {
		t.Fatal(err)
	}
	ofConfigMaps := func() *v1alpha1.WebhookPolicy {
		p := newPolicy(never)
		rule := &p.Spec.MatchConstraints.ResourceRules[0]
		rule.APIGroups, rule.Resources = []string{""}, []string{"configmaps"}
		rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
		return p
	}
	denying, rollingOut := ofConfigMaps(), ofConfigMaps()
	type actions = []admissionregistrationv1.ValidationAction
	rollingOut.Spec.Bindings = []v1alpha1.Binding{{Name: "b", Rollout: &v1alpha1.Rollout{
		Steps: []v1alpha1.RolloutStep{{Name: "s", ValidationActions: actions{admissionregistrationv1.Audit}, MinDurationSeconds: 1}},
		Final: v1alpha1.RolloutFinal{ValidationActions: actions{admissionregistrationv1.Deny}},
	}}}
	want := rehearser.Rehearse(t.Context(), denying, cluster(t))
	if !slices.ContainsFunc(want.Warnings, func(w advice.Warning) bool { return w.Kind == advice.DeniesAll }) {
		t.Fatalf("the policy that denies everything has the warnings %v", want.Warnings)
	}
	if diff := cmp.Diff(want, rehearser.Rehearse(t.Context(), rollingOut, cluster(t))); diff != "" {
		t.Errorf("with a rollout (-without +with):\n%s", diff)
	}
}

// A hint names the cause of an error: an input that is null, unless the expression compares it with
// null itself or in a variable, and otherwise the field that is absent.
func TestHints(t *testing.T) {
	tests := map[string]struct {
		variable, validation, want string
		operation                  admissionregistrationv1.OperationType
	}{
		"null": {
			operation: admissionregistrationv1.Create, validation: "oldObject.spec.paused == true",
			want: "oldObject is null on CREATE",
		},
		"null in a variable": {
			operation: admissionregistrationv1.Create, variable: "oldObject.spec", validation: "variables.v.paused == true",
			want: "oldObject is null on CREATE",
		},
		"a variable with a comparison": {
			operation: admissionregistrationv1.Create, variable: "oldObject == null ? object : oldObject",
			validation: "variables.v.spec.paused == true", want: "write variables.v.spec.?paused.orValue(false)",
		},
		"a comparison the other way round": {
			operation: admissionregistrationv1.Delete, variable: "null != object ? object : oldObject",
			validation: "variables.v.spec.paused == true", want: "write variables.v.spec.?paused.orValue(false)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy(tt.validation)
			if tt.variable != "" {
				p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: tt.variable}}
			}
			rule := &p.Spec.MatchConstraints.ResourceRules[0]
			rule.Operations = []admissionregistrationv1.OperationType{tt.operation}
			rule.APIGroups, rule.APIVersions, rule.Resources = []string{"apps"}, []string{"v1"}, []string{"deployments"}
			r, err := New(policy.LatestEngine)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Rehearse(t.Context(), p, cluster(t)).Warnings
			if len(got) == 0 || !strings.Contains(got[0].Text, tt.want) || !IsRefusal(got[0]) {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
		})
	}
}

func TestSatisfy(t *testing.T) {
	expression := func(key string, o metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: o,
			Values: values}}}
	}
	labels := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	const in, notIn, exists, absent = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
		metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	for name, tc := range map[string]struct {
		selectors []*metav1.LabelSelector
		want      map[string]string // nil: none
	}{
		"none": {want: map[string]string{}},
		"nil":  {selectors: []*metav1.LabelSelector{nil}, want: map[string]string{}},
		"a label": {selectors: []*metav1.LabelSelector{labels("a", "b")},
			want: map[string]string{"a": "b"}},
		"in": {selectors: []*metav1.LabelSelector{expression("a", in, "x", "y")},
			want: map[string]string{"a": "x"}},
		"in both": {selectors: []*metav1.LabelSelector{expression("a", in, "x", "y"),
			expression("a", in, "y", "z")}, want: map[string]string{"a": "y"}},
		"in, and not in": {selectors: []*metav1.LabelSelector{expression("a", in, "x", "y"),
			expression("a", notIn, "x")}, want: map[string]string{"a": "y"}},
		"exists, and not in": {selectors: []*metav1.LabelSelector{expression("a", exists), expression("a",
			notIn, "probe")}, want: map[string]string{"a": "probe-2"}},
		"not in": {selectors: []*metav1.LabelSelector{expression("a", notIn, "x")},
			want: map[string]string{}},
		"in nothing that both have": {selectors: []*metav1.LabelSelector{expression("a", in, "x"), expression("a",
			in, "y")}},
		"a label, and another value":  {selectors: []*metav1.LabelSelector{labels("a", "b"), labels("a", "c")}},
		"a label, and not this value": {selectors: []*metav1.LabelSelector{labels("a", "b"), expression("a", notIn, "b")}},
		"exists, and does not": {selectors: []*metav1.LabelSelector{expression("a", exists), expression("a",
			absent)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := satisfy(tc.selectors...)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != (tc.want != nil) {
				t.Errorf("ok is %t; labels (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// TestVariablesDoNotMultiply rehearses variables that each read the one before them twice.
func TestVariablesDoNotMultiply(t *testing.T) {
	for name, tc := range map[string]struct{ first, next, validation string }{
		"paths": {first: "object.?metadata.orValue({})", validation: "variables.v40 == 'a'",
			next: "object == null ? variables.v%[1]d.?a.orValue({}) : variables.v%[1]d.?b.orValue({})"},
		"conditions": {first: "object.metadata.name == 'a'", validation: "variables.v40",
			next: "variables.v%[1]d || variables.v%[1]d"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicy(tc.validation)
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v0", Expression: tc.first}}
			for i := range 40 {
				p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{
					Name: fmt.Sprint("v", i+1), Expression: fmt.Sprintf(tc.next, i)})
			}
			r, err := New(policy.LatestEngine)
			if err != nil {
				t.Fatal(err)
			}
			read := newReadings(r.compiler, &p.Spec)
			e := read.at("spec.validations[0].expression")
			if n := len(e.paths); n == 0 || n > 41*2*maxPaths {
				t.Errorf("%d paths", n)
			}
			if _, ok := read.valuesIn(e); ok {
				t.Error("the values of all paths are known")
			}
		})
	}
}

// TestAdviceFitsIntoWarnings: what an author gets about a subresource is not cut off.
func TestAdviceFitsIntoWarnings(t *testing.T) {
	subresources := map[string]string{"scale": "replicationcontrollers/scale"}
	for _, d := range detourTable() {
		name := d.resource + "/" + d.subresource
		if longer, ok := subresources[d.subresource]; ok {
			name = longer
		}
		for _, path := range d.paths {
			w := advice.Warning{Field: "spec.validations[999].expression", Text: d.warning(path, []string{name, name, name})}
			if got := validation.Bounded([]advice.Warning{w}); got[0] != w.String() {
				t.Errorf("a warning of %d bytes is cut to %q", len(w.String()), got[0])
			}
		}
	}
}
