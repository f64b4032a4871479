package uncounted

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/celengine"
)

// TestConstantVariables: a variable that is a constant is measured when it is compiled, with the extent and the limit of
// a value that is measured when it is read.
func TestConstantVariables(t *testing.T) {
	tests := map[string]struct {
		expression  string
		wantKnown   bool
		wantLimited bool // in the smallest class
	}{
		"a map":             {expression: `{"a": ["b", "cd"], "e": ["f"]}`, wantKnown: true},
		"a list":            {expression: `["a", "bc"]`, wantKnown: true},
		"a dynamic map":     {expression: `dyn({"a": {"b": "c"}})`, wantKnown: true},
		"a text":            {expression: `"abc"`, wantKnown: true},
		"a long list":       {expression: "[" + strings.Repeat(`"a",`, 999) + `"a"]`, wantKnown: true, wantLimited: true},
		"a long text":       {expression: `"` + strings.Repeat("a", 99_000) + `"`, wantKnown: true, wantLimited: true},
		"of the request":    {expression: `{"a": object.s}`},
		"a list in another": {expression: `["a"] + [object.s]`},
	}
	counted, c := compilersFor(t, celengine.LatestEngine)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			parsed, issues := counted.SyntaxEnv().Parse(tc.expression)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			policy := &Policy{}
			policy.AddVariable("v", c.Compile(tc.expression, parsed))
			e := NewBatch([]*Policy{policy}).Evaluate(Inputs{Object: jsonAdapter{types.DefaultTypeAdapter}.object(map[string]any{"s": "a"})})
			value := policy.Variables[0].eval(e.frame)
			known := policy.Variables[0].fixed
			if (known != nil) != tc.wantKnown {
				t.Fatalf("known extent %+v, want one: %t", known, tc.wantKnown)
			}
			if known != nil {
				if diff := cmp.Diff(measure(value), *known, cmp.AllowUnexported(extent{})); diff != "" {
					t.Errorf("extent (-want +got):\n%s", diff)
				}
			}
			if got := IsUnfinished(e.variable(0)); got != tc.wantLimited {
				t.Errorf("beyond the limit: %t, want %t", got, tc.wantLimited)
			}
		})
	}
}
