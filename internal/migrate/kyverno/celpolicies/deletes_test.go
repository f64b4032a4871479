package celpolicies

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// Ostiary rejects mutations with the operation DELETE, which has no object to change.
func TestMutationsWithoutDelete(t *testing.T) {
	const source = `apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: mutation}
spec:
  autogen: {podControllers: {controllers: []}}
  matchConstraints:
    resourceRules: [RULES]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{hostNetwork: false}}"}
`
	rule := func(operations string) string {
		return `{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [` + operations + `]}`
	}
	type operations = []admissionregistrationv1.OperationType
	tests := map[string]struct {
		rules string
		want  []operations
		notes bool
	}{
		"without DELETE":     {rules: rule("CREATE, UPDATE"), want: []operations{{"CREATE", "UPDATE"}}},
		"beside others":      {rules: rule("CREATE, DELETE"), want: []operations{{"CREATE"}}, notes: true},
		"in a rule alone":    {rules: rule("CREATE") + ", " + rule("DELETE"), want: []operations{{"CREATE"}}, notes: true},
		"alone":              {rules: rule("DELETE")},
		"all operations":     {rules: rule(`"*"`), want: []operations{{"*"}}},
		"in one of two more": {rules: rule("CREATE") + ", " + rule("DELETE, UPDATE"), want: []operations{{"CREATE"}, {"UPDATE"}}, notes: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := read(t, strings.Replace(source, "RULES", tt.rules, 1))
			converted, err := Source().Convert(&conversion.Input{Objects: in, All: in})
			if err != nil {
				t.Fatal(err)
			}
			var got []operations
			for _, o := range converted[0].Outputs {
				for _, r := range o.Policy().Spec.MatchConstraints.ResourceRules {
					got = append(got, r.Operations)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			notes := false
			for _, r := range converted[0].Rows {
				notes = notes || strings.Contains(r.Detail, noteMutationOfDelete)
			}
			if notes != tt.notes {
				t.Errorf("noted: %v, want %v: %v", notes, tt.notes, converted[0].Rows)
			}
		})
	}
}
