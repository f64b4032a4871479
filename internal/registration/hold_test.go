package registration

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func heldPolicy(name string, timeout int32, failure admissionregistrationv1.FailurePolicyType) *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WebhookPolicySpec{
			TimeoutSeconds: &timeout, FailurePolicy: &failure,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []v1alpha1.Validation{{Expression: "true"}},
		},
	}
}

// failurePolicy Fail is held at Ignore until it is proven that API servers reach
// Ostiary. Afterwards only the author changes it.
func TestHoldAtIgnore(t *testing.T) {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	plan := func(policies ...*v1alpha1.WebhookPolicy) Plan {
		return Build(Input{Policies: policies, Endpoint: Endpoint{URL: "https://h"}, CABundle: []byte("b")})
	}
	observed := func(p Plan) []Configuration {
		var out []Configuration
		for _, g := range p.Groups {
			out = append(out, g.Configuration)
		}
		return out
	}
	never, always := func(Phase) bool { return false }, func(Phase) bool { return true }
	a, moved, authored := heldPolicy("a", 5, fail), heldPolicy("a", 6, fail), heldPolicy("a", 5, ignore)
	hosted := heldPolicy("a", 5, fail)
	hosted.Spec.Validations = nil
	hosted.Spec.Backend = &v1alpha1.Backend{Type: v1alpha1.BackendValidating, Service: &v1alpha1.BackendService{Namespace: "shop", Name: "checks"}, AdmissionReviewVersions: []string{"v1"}}
	tests := map[string]struct {
		plan     Plan
		observed []Configuration
		proven   func(Phase) bool
		want     admissionregistrationv1.FailurePolicyType
	}{
		"not proven":                        {plan(a), nil, never, ignore},
		"proven":                            {plan(a), nil, always, fail},
		"held before, now proven":           {plan(a), observed(plan(a).HoldAtIgnore(nil, never)), always, fail},
		"held before, still not proven":     {plan(a), observed(plan(a).HoldAtIgnore(nil, never)), never, ignore},
		"Fail before":                       {plan(a), observed(plan(a)), never, fail},
		"Fail before, and the policy moves": {plan(moved), observed(plan(a)), never, fail},
		"Fail before, with a new member":    {plan(a, heldPolicy("b", 5, fail)), observed(plan(a)), never, fail},
		"another policy has Fail":           {plan(a), observed(plan(heldPolicy("b", 6, fail))), never, ignore},
		"the author changes Fail to Ignore": {plan(authored), observed(plan(a)), never, ignore},
		"a backend":                         {plan(hosted), nil, never, fail},
		"Ignore, proven":                    {plan(authored), nil, always, ignore},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := *Webhooks(tt.plan.Groups[0].Configuration)[0].FailurePolicy
			got := tt.plan.HoldAtIgnore(tt.observed, tt.proven)
			if have := *Webhooks(got.Groups[0].Configuration)[0].FailurePolicy; have != tt.want {
				t.Errorf("failurePolicy %s, want %s", have, tt.want)
			}
			if after := *Webhooks(tt.plan.Groups[0].Configuration)[0].FailurePolicy; after != before {
				t.Error("HoldAtIgnore changed the plan")
			}
		})
	}
	// A held policy is registered.
	p := plan(a)
	view := NewView(p, observed(p.HoldAtIgnore(nil, never)))
	if _, ok, why := view.Registered(Prepare(a)); !ok || !view.HeldAtIgnore(Prepare(a)) {
		t.Errorf("registered %t (%s), held %t; want both", ok, why, view.HeldAtIgnore(Prepare(a)))
	}
	if view = NewView(p, observed(p)); view.HeldAtIgnore(Prepare(a)) {
		t.Error("held with failurePolicy Fail")
	}
}
