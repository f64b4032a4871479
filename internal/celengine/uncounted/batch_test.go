package uncounted

import (
	"slices"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/ostiary/ostiary/internal/celengine"
)

// TestReleasedValues: evaluations that use the same memory one after the other have only their own values.
func TestReleasedValues(t *testing.T) {
	counted, c := compilersFor(t, celengine.LatestEngine)
	const text = `object.s == "a"`
	parsed, issues := counted.SyntaxEnv().Parse(text)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	b := NewBatch([]*Policy{{Validations: []*Expression{c.Compile(text, parsed)}}})
	for i, want := range []Outcome{Satisfied, Violated, Satisfied, Violated} {
		object := map[string]any{"s": map[Outcome]string{Satisfied: "a", Violated: "b"}[want]}
		e := b.Evaluate(Inputs{Object: jsonAdapter{types.DefaultTypeAdapter}.object(object)})
		if got := e.Policy(0); got != want {
			t.Errorf("evaluation %d: outcome %d, want %d", i, got, want)
		}
		values := e.values
		e.Release()
		if slices.ContainsFunc(values, func(v ref.Val) bool { return v != nil }) {
			t.Errorf("evaluation %d: released values %v, want none", i, values)
		}
	}
}
