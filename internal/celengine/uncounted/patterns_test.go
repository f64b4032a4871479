package uncounted

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/celengine"
)

// TestComputedPatterns: a pattern from a list of the policy is compiled once, one from the request is not kept, and
// both decide as the library does.
func TestComputedPatterns(t *testing.T) {
	const listed = `["^a+$", "plain", "(", "x|y"]`
	tests := []struct {
		name, variable, validation string
		want                       Outcome
		wantKept                   []string
	}{
		{"of a variable that matches", listed, `variables.v.exists(p, object.s.matches(p))`, Satisfied, []string{"(", "^a+$", "x|y"}},
		{"of a variable that does not match", `["^b$"]`, `variables.v.exists(p, object.s.matches(p))`, Violated, []string{"^b$"}},
		{"an invalid one", `["("]`, `variables.v.exists(p, object.s.matches(p))`, Violated, []string{"("}},
		{"an invalid one beside one that matches", `["(", "a"]`, `variables.v.exists(p, object.s.matches(p))`, Satisfied, []string{"("}},
		{"of a map", `{"k": "^a+$"}`, `object.s.matches(variables.v.k)`, Satisfied, []string{"^a+$"}},
		{"of a list in the call", `[1]`, `["^a+$"].all(p, object.s.matches(p))`, Satisfied, []string{"^a+$"}},
		{"of the request", `["^a+$"]`, `object.s.matches(object.pattern)`, Satisfied, []string{"^a+$"}},
		{"no pattern is computed", `["^a+$"]`, `object.s.matches("^a+$")`, Satisfied, nil},
		{"no text", `["^a+$"]`, `object.n.matches(variables.v[0])`, Violated, []string{"^a+$"}},
		{"no pattern", `["^a+$"]`, `object.s.matches(object.n)`, Violated, []string{"^a+$"}},
		{"an absent text", `["^a+$"]`, `object.no.matches(variables.v[0])`, Violated, []string{"^a+$"}},
	}
	object := map[string]any{"s": "aa", "n": int64(1), "pattern": "^a{2}$"}
	for _, engine := range []celengine.Engine{celengine.OldestEngine, celengine.LatestEngine} {
		counted, c := compilersFor(t, engine)
		compile := func(text string) *Expression {
			parsed, issues := counted.SyntaxEnv().Parse(text)
			if issues.Err() != nil {
				t.Fatalf("%s: %v", text, issues.Err())
			}
			return c.Compile(text, parsed)
		}
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				policy := &Policy{}
				policy.AddVariable("v", compile(test.variable))
				policy.Validations = []*Expression{compile(test.validation)}
				b := NewBatch([]*Policy{policy})
				for range 2 { // the second time, the patterns are compiled
					e := b.Evaluate(Inputs{Object: jsonAdapter{types.DefaultTypeAdapter}.object(object)})
					if got := e.Policy(0); got != test.want {
						t.Errorf("in %s: got outcome %d, want %d: %v", engine, got, test.want, e.Validation(0))
					}
				}
				if diff := cmp.Diff(test.wantKept, slices.Sorted(maps.Keys(b.patterns))); diff != "" {
					t.Errorf("in %s: kept patterns (-want +got):\n%s", engine, diff)
				}
				b.patterns = nil
				e := b.Evaluate(Inputs{Object: jsonAdapter{types.DefaultTypeAdapter}.object(object)})
				if got := e.Policy(0); got != test.want {
					t.Errorf("in %s: without patterns: got outcome %d, want %d", engine, got, test.want)
				}
			})
		}
	}
}
