package audit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/policy"
)

func TestNativePolicies(t *testing.T) {
	const lease = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l, namespace: shop}}"
	onLeases := strings.NewReplacer("''", "coordination.k8s.io", "configmaps", "leases").Replace(onConfigMaps)
	noTeam := strings.Replace(requiresTeam, "name: team, ", "", 1) // native validations have no names
	violates := func(d policy.Decision, binding string) policy.Audited {
		return policy.Audited{
			Decision:   d,
			Denied:     d == policy.DecisionDeny,
			Violations: []policy.Violation{{Decision: d, Message: "no team", Binding: binding}},
		}
	}
	tests := map[string]struct {
		spec, bindings, object string
		want                   policy.Audited
	}{
		"denied": {
			spec:     rulesWith(onConfigMaps, "") + noTeam,
			bindings: "[{metadata: {name: b}, spec: {validationActions: [Deny]}}]",
			object:   configMap,
			want:     violates(policy.DecisionDeny, "b"),
		},
		"audited": {
			spec:     rulesWith(onConfigMaps, "") + noTeam,
			bindings: "[{metadata: {name: b}, spec: {validationActions: [Audit]}}]",
			object:   configMap,
			want:     violates(policy.DecisionAudit, "b"),
		},
		"a binding for others": {
			spec:     rulesWith(onConfigMaps, "") + noTeam,
			bindings: "[{metadata: {name: b}, spec: {validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {team: b}}}}}]",
			object:   configMap,
			want:     policy.Audited{Decision: policy.DecisionUnmatched},
		},
		"Kubernetes' own objects": {
			spec:     rulesWith(onConfigMaps, "") + noTeam,
			bindings: "[{metadata: {name: b}, spec: {validationActions: [Deny]}}]",
			object:   strings.Replace(configMap, "shop", "kube-system", 1),
			want:     violates(policy.DecisionDeny, "b"),
		},
		"what policies leave out": {
			spec:     rulesWith(onLeases, "") + noTeam,
			bindings: "[{metadata: {name: b}, spec: {validationActions: [Warn]}}]",
			object:   lease,
			want:     violates(policy.DecisionWarn, "b"),
		},
		"params": {
			spec: rulesWith(onConfigMaps, "") +
				"paramKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: 'params.data.limit == \"3\"', message: no team}]",
			bindings: "[{metadata: {name: b}, spec: {validationActions: [Deny], paramRef: {name: l, parameterNotFoundAction: Deny}}}]",
			object:   configMap,
			want:     violates(policy.DecisionDeny, "b"),
		},
		"variables and conditions": {
			spec: rulesWith(onConfigMaps, "") +
				"matchConditions: [{name: m, expression: 'object.data.a == \"b\"'}]\n" +
				"variables: [{name: v, expression: 'object.data.a'}]\nvalidations: [{expression: 'variables.v == \"b\"'}]",
			bindings: "[{metadata: {name: b}, spec: {validationActions: [Deny]}}]",
			object:   configMap,
			want:     policy.Audited{Decision: policy.DecisionAllow},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			native := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
			if err := yaml.UnmarshalStrict([]byte(tc.spec), &native.Spec); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(tc.bindings), &bindings); err != nil {
				t.Fatal(err)
			}
			p := FromNative(native, bindings)
			compiled, errs := policy.NewCompiler().Compile(p)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			got := NewEvaluator(p, compiled, nil).Evaluate(t.Context(), objectFrom(t, tc.object), environment())
			if diff := cmp.Diff(tc.want, got.Audited); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
