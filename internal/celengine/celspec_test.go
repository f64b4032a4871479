package celengine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "cel.dev/expr/conformance/proto2" // messages in the files
	_ "cel.dev/expr/conformance/proto3"
	spec "cel.dev/expr/conformance/test"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/encoding/prototext"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
)

// TestSpecification runs the tests of the CEL specification that need no variables. Each
// gives what the compiler of the API server gives. If its environment has the functions,
// that is what the specification wants, with the exceptions that it counts.
func TestSpecification(t *testing.T) {
	native := celplugin.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	ours := NewCompiler(LatestEngine)
	var run, compiled, others int
	for _, file := range specificationFiles(t) {
		for _, section := range file.Section {
			for _, test := range section.Test {
				if len(test.TypeEnv)+len(test.Bindings) > 0 || test.Container != "" || test.DisableCheck || test.DisableMacros || test.CheckOnly {
					continue
				}
				accessor := &validating.Variable{Name: "any", Expression: test.Expr}
				decls := celplugin.OptionalVariableDeclarations{}
				want, value := specOutcome(compile(accessor, func() celplugin.CompilationResult {
					return native.CompileCELExpression(accessor, decls, environment.StoredExpressions)
				}))
				parsed, _ := ours.SyntaxEnv().Parse(accessor.GetExpression())
				got, answer := specOutcome(ours.Expression(KnownVariables{}, accessor, decls, parsed).Result)
				run++
				// The text of a map has its keys in any order.
				if got != want && (answer == nil || value == nil || types.Equal(answer, value) != types.True) {
					t.Errorf("%s/%s/%s: %s: got %s, want %s", file.Name, section.Name, test.Name, test.Expr, got, want)
				}
				if strings.HasPrefix(want, "does not compile") {
					continue
				}
				compiled++
				if !meets(test, value) {
					others++
					t.Logf("%s/%s/%s: %s: the environment of API servers gives %s", file.Name, section.Name, test.Name, test.Expr, want)
				}
			}
		}
	}
	t.Logf("%d tests, %d of them compile, %d of these differ from the specification", run, compiled, others)
	if run < 1000 || compiled < 700 || others*20 > compiled {
		t.Error("want most tests to compile and to meet the specification")
	}
}

// specOutcome is the value of an expression or its error, as text, and the value or nil.
func specOutcome(result celplugin.CompilationResult) (text string, value ref.Val) {
	if result.Error != nil {
		return "does not compile: " + result.Error.Error(), nil
	}
	out, details, err := result.Program.Eval(map[string]any{})
	if err != nil {
		return "error: " + err.Error(), nil
	}
	cost := details.ActualCost()
	return fmt.Sprintf("%T %v, cost %d", out, out, *cost), out
}

// meets reports whether a value, or nil for an error, is what a test wants.
func meets(test *spec.SimpleTest, value ref.Val) bool {
	switch want := test.ResultMatcher.(type) {
	case nil: // true
		return value == types.True
	case *spec.SimpleTest_EvalError, *spec.SimpleTest_AnyEvalErrors:
		return value == nil
	case *spec.SimpleTest_Value:
		expected, err := cel.ProtoAsValue(types.DefaultTypeAdapter, want.Value)
		if err != nil || value == nil {
			return err != nil // a message that the environment does not have
		}
		return types.Equal(expected, value) == types.True
	}
	return true
}

func specificationFiles(t *testing.T) []*spec.SimpleTestFile {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "cel.dev/expr").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "tests/simple/testdata/*.textproto"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("got %q, %v, want the files of the specification", paths, err)
	}
	out := make([]*spec.SimpleTestFile, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = &spec.SimpleTestFile{}
		if err := prototext.Unmarshal(text, out[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return out
}
