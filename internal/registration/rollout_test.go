package registration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// TestFailurePolicyOfSteps: the registered failurePolicy is that of the policy as soon as an action of the step in effect denies.
func TestFailurePolicyOfSteps(t *testing.T) {
	const deny, warn, audit = admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit
	actions := func(a admissionregistrationv1.ValidationAction) []admissionregistrationv1.ValidationAction {
		return []admissionregistrationv1.ValidationAction{a}
	}
	dev := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "dev"}}
	steps := []v1alpha1.RolloutStep{
		{Name: "learn", ValidationActions: actions(audit)},
		{Name: "deny-dev", ValidationActions: actions(deny), NamespaceSelector: dev},
		{Name: "warn", ValidationActions: actions(warn)},
	}
	for _, tc := range []struct {
		name          string
		state         []v1alpha1.BindingStatus
		failurePolicy admissionregistrationv1.FailurePolicyType
		want          admissionregistrationv1.FailurePolicyType
	}{
		{"no recorded state", nil, admissionregistrationv1.Fail, admissionregistrationv1.Ignore},
		{"an unknown step", []v1alpha1.BindingStatus{{Name: "b", Step: "unknown"}}, admissionregistrationv1.Fail, admissionregistrationv1.Ignore},
		{"the first step", []v1alpha1.BindingStatus{{Name: "b", Step: "learn"}}, admissionregistrationv1.Fail, admissionregistrationv1.Ignore},
		{"a step that denies in some namespaces", []v1alpha1.BindingStatus{{Name: "b", Step: "deny-dev"}},
			admissionregistrationv1.Fail, admissionregistrationv1.Fail},
		{"a step after it", []v1alpha1.BindingStatus{{Name: "b", Step: "warn"}}, admissionregistrationv1.Fail, admissionregistrationv1.Ignore},
		{"the final action", []v1alpha1.BindingStatus{{Name: "b", Final: true}}, admissionregistrationv1.Fail, admissionregistrationv1.Fail},
		{"the final action with Ignore", []v1alpha1.BindingStatus{{Name: "b", Final: true}},
			admissionregistrationv1.Ignore, admissionregistrationv1.Ignore},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.WebhookPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []rule{ruleOf("", "configmaps")}},
				Validations:      []v1alpha1.Validation{{Expression: "false"}},
				FailurePolicy:    &tc.failurePolicy,
				Bindings: []v1alpha1.Binding{{Name: "b", Rollout: &v1alpha1.Rollout{
					Steps: steps, Final: v1alpha1.RolloutFinal{ValidationActions: actions(deny)},
				}}},
			}}
			p.Status.Bindings = tc.state
			before := p.DeepCopy()
			entry := Prepare(p)
			if got := entry.memberships[0].settings().FailurePolicy; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the policy has changed:\n%s", diff)
			}
		})
	}
}
