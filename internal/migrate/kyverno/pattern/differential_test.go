package pattern

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// pairs is the number of pairs of patterns and objects.
const (
	pairs      = 100_000
	pairsShort = 5_000
	perPattern = 5
	maxSource  = 3_000 // of expressions, so that the test takes seconds
)

// TestCompiledPatternsDecideLikeTheInterpreter compares the CEL of random patterns with the
// interpreter, on random objects.
func TestCompiledPatternsDecideLikeTheInterpreter(t *testing.T) {
	t.Parallel()
	wanted := pairs
	if testing.Short() {
		wanted = pairsShort
	}
	env := newEnv(t)
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	roots := []struct {
		name  string
		shape ce.Shape
	}{
		{name: "Pod", shape: ce.ShapeOfKinds(pod)},
		{name: "unknown kind", shape: ce.Shape{}},
		{
			name: "Deployment or StatefulSet",
			shape: ce.ShapeOfKinds(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
				schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}),
		},
	}
	for _, root := range roots {
		t.Run(root.name, func(t *testing.T) {
			t.Parallel()
			g := &generator{Rand: rand.New(rand.NewPCG(1, 2))}
			compared, denied, skipped, leftOut := 0, 0, 0, 0
			for compared < wanted/len(roots) {
				pattern := g.pattern(root.shape, "", 0)
				e, err := Compile(pattern, ce.ObjectPlace("object", root.shape))
				if err != nil || len(e.String()) > maxSource {
					leftOut++
					continue
				}
				program := newProgram(t, env, e.String())
				for range perPattern {
					object := g.objectFor(root.shape, pattern)
					i := &interpreter{}
					verdict := i.value(object, pattern, "")
					if i.ambiguous {
						continue
					}
					compared++
					if verdict == fail {
						denied++
					}
					if verdict.skipped() {
						skipped++
					}
					got, _, err := program.Eval(map[string]any{"object": object})
					if err != nil || got.Value() != (verdict != fail) {
						t.Fatalf("CEL says %v (%v), the interpreter %v\npattern: %s\nobject: %s\nCEL: %s", got, err, verdict,
							encode(pattern), encode(object), shortened(e.String()))
					}
				}
			}
			t.Logf("compared %d pairs: %d denied, %d skipped; %d patterns are left out", compared, denied, skipped, leftOut)
			if denied < compared/10 || compared-denied < compared/10 || skipped < compared/50 || leftOut > compared/2 {
				t.Errorf("the random pairs say little: %d pairs, %d denied, %d skipped, %d patterns left out", compared, denied, skipped, leftOut)
			}
		})
	}
}

func shortened(text string) string { return text[:min(len(text), 3_000)] }

func encode(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func newEnv(t testing.TB) *cel.Env {
	t.Helper()
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 34)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable("object", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return set.NewExpressionsEnv()
}

func newProgram(t testing.TB, env *cel.Env, expression string) cel.Program {
	t.Helper()
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("compiling %s: %s", shortened(expression), issues.Errors()[0].Message)
	}
	if checked.OutputType() != cel.BoolType && checked.OutputType() != cel.DynType {
		t.Fatalf("%s has the type %s, want bool", expression, checked.OutputType())
	}
	program, err := env.Program(checked)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
