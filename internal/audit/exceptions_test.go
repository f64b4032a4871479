package audit

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/policy"
)

// TestExceptedObjects shows what the audit says about objects that an exception covers.
func TestExceptedObjects(t *testing.T) {
	both := rulesWith(onConfigMaps, "") + "exceptions: {}\n"
	const onCreate = "{name: new, expression: 'oldObject != null', message: new}"
	tests := map[string]struct {
		spec        string
		object      string
		want        policy.Decision
		wantFinding bool
	}{
		"excepted": {spec: both + requiresTeam, object: configMap, want: policy.DecisionExcepted},
		"no exceptions": {
			spec:        rulesWith(onConfigMaps, "") + requiresTeam,
			object:      configMap,
			want:        policy.DecisionDeny,
			wantFinding: true,
		},
		"another validation": {
			spec:        both + "validations: [{name: owner, expression: 'false'}]",
			object:      configMap,
			want:        policy.DecisionDeny,
			wantFinding: true,
		},
		"a creation is denied": {
			spec:        both + "validations: [{name: team, expression: 'false'}, " + onCreate + "]",
			object:      configMap,
			want:        policy.DecisionDeny,
			wantFinding: true,
		},
		"only creations": {
			spec: "exceptions: {}\n" + rulesWith(onPods, "") + "validations: [{name: team, expression: 'false'}]", object: storedPod,
			want: policy.DecisionExcepted,
		},
	}
	x := &v1alpha1.WebhookPolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}}
	x.Spec.PolicyName, x.Spec.Validations = "p", []string{"team"}
	x.Spec.Match = []v1alpha1.ExceptionMatch{{Resources: []string{"configmaps", "pods"}, Names: []string{"web"}}}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, tc.spec)
			compiled, errs := policy.NewCompiler().Compile(p)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			host := environment()
			host.Exceptions = exceptions.NewIndex([]*exceptions.Entry{exceptions.NewEntry(x)})
			got := NewEvaluator(p, compiled, nil).Evaluate(t.Context(), objectFrom(t, tc.object), host)
			if got.Decision != tc.want || got.IsFinding() != tc.wantFinding {
				t.Errorf("got %s, finding %t, want %s, %t: %+v", got.Decision, got.IsFinding(), tc.want, tc.wantFinding, got.Violations)
			}
		})
	}
}
