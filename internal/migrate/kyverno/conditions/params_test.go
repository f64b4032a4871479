package conditions

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// programOf compiles an expression that reads a and b.
func programOf(t *testing.T, e ce.Expression) func(a, b string) (ref.Val, error) {
	t.Helper()
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 34)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("a", cel.DynType), cel.Variable("b", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	env := set.StoredExpressionsEnv()
	ast, issues := env.Compile(e.String())
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	return func(a, b string) (ref.Val, error) {
		out, _, err := program.Eval(map[string]any{"a": a, "b": b})
		return out, err
	}
}

// A list of texts is that of encoding/json. One that it cannot read, or with escapes, fails.
func TestTextsOf(t *testing.T) {
	evaluate := programOf(t, textsOf(ce.Term("a")))
	for _, text := range []string{
		`["a","b"]`, " [ \"a\" ,\n\"b\" ] ", "[]", "[ ]", `["a]","b,[c", ""]`, "a", "", `"a"`, "5", "a[0]",
		"[1]", `["a",]`, `["a" "b"]`, `[["a"]]`, `["a\"b"]`, `["a\\b"]`, "[x", `["a"] x`, `["a", null]`, "[a-z]*",
	} {
		t.Run(text, func(t *testing.T) {
			want := []string{text}
			isList := strings.HasPrefix(strings.TrimSpace(text), "[")
			wantError := isList && (json.Unmarshal([]byte(text), &want) != nil || strings.ContainsAny(text, `\`) ||
				strings.Contains(text, "null"))
			got, err := evaluate(text, "")
			if (err != nil) != wantError {
				t.Fatalf("got %v and %v, want an error: %v", got, err, wantError)
			}
			if err != nil {
				return
			}
			texts, err := got.ConvertToNative(reflect.TypeFor[[]string]())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(want, texts.([]string)) {
				t.Errorf("got %q, want %q", texts, want)
			}
		})
	}
}

func TestMatchPattern(t *testing.T) {
	evaluate := programOf(t, scalar.MatchPattern(ce.Term("a"), ce.Term("b")))
	for _, pattern := range []string{
		"", "*", "?", "a*", "*a", "a?c", "a**b", `\E`, `x\Ey*`, `\Q*`, `\\E*`, ".*", "[a]", "(*", "ä?", "$", "a\n*",
	} {
		for _, text := range []string{
			"", "a", "ab", "abc", "a.c", "a\nb", `\E`, `x\Eyz`, `\Qx`, `\\Ex`, ".x", "x", "[a]", "(x", "äö", "$",
		} {
			got, err := evaluate(pattern, text)
			if want := scalar.MatchesWildcard(pattern, text); err != nil || got != types.Bool(want) {
				t.Errorf("%q and %q: got %v and %v, want %v", pattern, text, got, err, want)
			}
		}
	}
}
