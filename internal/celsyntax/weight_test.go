package celsyntax

import (
	"testing"

	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/test/bench"
)

// Real policies are far below the bounds.
func TestRealPoliciesAreFarFromTooCostly(t *testing.T) {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv()
	var most weights
	for _, set := range []string{"A", "B", "C", "D"} {
		policies, err := bench.Policies(set)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			var w weights
			for _, expression := range Expressions(&p.Spec) {
				if _, err := w.parse(env, expression); err != nil {
					t.Fatal(err)
				}
			}
			most.nodes = max(most.nodes, w.nodes)
			most.calls = max(most.calls, w.calls)
			most.openTypes = max(most.openTypes, w.openTypes)
			most.pattern = max(most.pattern, w.pattern)
		}
	}
	if most.nodes > MaxNodes/8 || most.calls > MaxCalls/8 || most.openTypes > MaxOpenTypes/8 || most.pattern > MaxPattern/8 {
		t.Errorf("the most is %+v, want an eighth of the bounds at most", most)
	}
	t.Logf("%+v", most)
}
