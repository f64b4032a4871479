package celengine

import (
	"fmt"
	"testing"

	"github.com/google/cel-go/cel"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
)

// TestProgramsAreShared: the fields of cel-go are those that this version of Ostiary knows, for every kind of
// expression and every engine, and a program that shares tables gives the result and the cost of one that does not.
func TestProgramsAreShared(t *testing.T) {
	for engine := OldestEngine; engine <= LatestEngine; engine++ {
		c := NewCompiler(engine)
		kubernetes := celplugin.NewCompiler(c.Environment())
		sharing, ok := c.plain.(sharingCompiler)
		if !ok {
			t.Fatalf("got a %T, want a sharingCompiler", c.plain)
		}
		for decls, program := range sharing.shared {
			t.Run(fmt.Sprintf("%s with %+v", engine, decls), func(t *testing.T) {
				shared := program()
				if shared == nil {
					t.Fatal("programs are not shared: cel-go has other fields than unexported.go expects")
				}
				const text = `object.name.matches("a+") && [1, 2, 3].exists(n, n == object.n)`
				checked, issues := shared.check(text, nil)
				if issues.Err() != nil {
					t.Fatal(issues.Err())
				}
				planned, err := shared.plan(checked)
				if err != nil {
					t.Fatal(err)
				}
				accessor := &validating.ValidationCondition{Expression: text}
				native := kubernetes.CompileCELExpression(accessor, decls, environment.StoredExpressions)
				if native.Error != nil {
					t.Fatal(native.Error)
				}
				if got, want := outcomeOf(planned), outcomeOf(native.Program); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

// TestTracingProgramsAreNotShared: a program with options of its own keeps them.
func TestTracingProgramsAreNotShared(t *testing.T) {
	c := NewCompiler(LatestEngine, cel.EvalOptions(cel.OptTrackState))
	sharing, ok := c.plain.(sharingCompiler)
	if !ok {
		t.Fatalf("got a %T, want a sharingCompiler", c.plain)
	}
	if sharing.shared[celplugin.OptionalVariableDeclarations{}]() != nil {
		t.Error("a program with other options is shared")
	}
}

// outcomeOf is the value and the cost of a program.
func outcomeOf(p cel.Program) string {
	value, details, err := p.Eval(map[string]any{"object": map[string]any{"name": "aaa", "n": int64(3)}})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(value, " for ", *details.ActualCost())
}
