package celengine

import (
	"fmt"
	"strings"
	"testing"

	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// TestEngines: what each engine answers, as the native engine of its version does.
func TestEngines(t *testing.T) {
	const noOverload, noMatch = "no such overload", "found no matching overload for '"
	tests := map[string]struct {
		expression string
		want36     string // a part of the error; empty: true
		want37     string
	}{
		"orValue of an optional":       {expression: `object.?name.orValue("x") == "a" && object.?no.orValue("x") == "x"`},
		"or of an optional":            {expression: `object.?no.or(object.?name).value() == "a"`},
		"orValue of a value":           {expression: `object.name.orValue("x") == "a"`, want37: noOverload},
		"or of a value":                {expression: `dyn(object.name.or(optional.of("x"))) == "a"`, want37: noOverload},
		"orValue of null":              {expression: `dyn(object.none.orValue("x")) == null`, want37: noOverload},
		"orValue of a value in a loop": {expression: `object.list.all(e, e.orValue(7) < 3)`, want37: noOverload},
		"orValue of an error": {
			expression: `object.no.orValue("x") == "x"`,
			want36:     "no such key: no",
			want37:     "no such key: no",
		},
		"orValue of a string": {
			expression: `"a".orValue("x") == "a"`,
			want36:     noMatch + "orValue' applied to 'string.(string)'",
			want37:     noMatch + "orValue' applied to 'string.(string)'",
		},
		"orValue evaluates one side": {expression: `object.?name.orValue(object.no) == "a"`},
		"nested": {
			expression: `object.?no.or(object.?name).orValue(object.name).orValue("y") == "a"`,
			want37:     noOverload,
		},
		"duration of an integer": {
			expression: `duration(object.list[0]) == duration("1s")`,
			want36:     "type conversion error from 'int' to 'google.protobuf.Duration'",
			want37:     noOverload,
		},
		"a range of a negative number": {expression: `lists.range(-1) == []`, want37: "size must be non-negative"},
		"a range":                      {expression: `lists.range(3) == [0, 1, 2]`},
		"a range beyond the bounds": {
			expression: `lists.range(10000000).size() > 0`,
			want36:     "a range has more than",
			want37:     "a range has more than",
		},
		"equality with null":                 {expression: `object.none == null && object.name != null && object.?no != null`},
		"an optional is not its value":       {expression: `dyn(object.?name) != "a" && object.?name == optional.of("a")`},
		"a value that an optional may be of": {expression: `optional.ofNonZeroValue("") == optional.none()`},
	}
	for name, tt := range tests {
		for engine, want := range map[Engine]string{OldestEngine: tt.want36, 36: tt.want36, LatestEngine: tt.want37} {
			t.Run(name+" in "+engine.String(), func(t *testing.T) {
				got := evaluated(t, NewCompiler(engine), tt.expression)
				if want == "" && got != "true" || !strings.Contains(got, want) || strings.Contains(got, tolerant) {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

// TestEngineCosts: an upgrade of the cluster makes some functions cheaper and one dearer,
// so that a policy can exceed its budget in one version only. The conformance suite has
// such policies.
func TestEngineCosts(t *testing.T) {
	const long = `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"` // 40 characters: 4 for reading them
	tests := map[string]struct {
		expression     string
		want36, want37 uint64
	}{
		"a prefix of a long text":          {expression: long + `.startsWith("a")`, want36: 4, want37: 1},
		"a long prefix":                    {expression: `"a".startsWith(` + long + `) || true`, want36: 1, want37: 4},
		"a suffix of a long text":          {expression: long + `.endsWith("a")`, want36: 4, want37: 1},
		"the function matches":             {expression: `matches(` + long + `, "a")`, want36: 1, want37: 5},
		"the method matches":               {expression: long + `.matches("a")`, want36: 5, want37: 5},
		"a part, in which nothing changed": {expression: long + `.contains("a")`, want36: 4, want37: 4},
	}
	for name, tt := range tests {
		for engine, want := range map[Engine]uint64{OldestEngine: tt.want36, 36: tt.want36, LatestEngine: tt.want37} {
			t.Run(name+" in "+engine.String(), func(t *testing.T) {
				if got, cost := evaluatedAtCost(t, NewCompiler(engine), tt.expression); got != "true" || cost != want {
					t.Errorf("got %s for %d, want true for %d", got, cost, want)
				}
			})
		}
	}
}

// evaluated is the value of an expression, or its error.
func evaluated(t *testing.T, c *Compiler, expression string) string {
	t.Helper()
	value, _ := evaluatedAtCost(t, c, expression)
	return value
}

func evaluatedAtCost(t *testing.T, c *Compiler, expression string) (value string, cost uint64) {
	t.Helper()
	program := c.Expression(KnownVariables{}, &validating.ValidationCondition{Expression: expression},
		celplugin.OptionalVariableDeclarations{}, nil)
	if program.Result.Error != nil {
		return program.Result.Error.Error(), 0
	}
	out, details, err := program.Result.Program.Eval(map[string]any{
		"object": map[string]any{"name": "a", "none": nil, "list": []any{int64(1), int64(2)}},
	})
	if err != nil {
		return err.Error(), 0
	}
	return fmt.Sprint(out.Value()), *details.ActualCost()
}

func TestEngineOf(t *testing.T) {
	tests := map[string]struct {
		major, minor string
		want         Engine
		wantErr      bool
	}{
		"a version":                {major: "1", minor: "36", want: 36},
		"of a provider":            {major: "1", minor: "36+", want: 36},
		"older than the oldest":    {major: "1", minor: "30", want: OldestEngine},
		"later than the latest":    {major: "1", minor: "99", want: LatestEngine},
		"another major version":    {major: "2", minor: "0", wantErr: true},
		"no version":               {wantErr: true},
		"a minor version in words": {major: "1", minor: "x36", wantErr: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := EngineOf(tt.major, tt.minor)
			if got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}
