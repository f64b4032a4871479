package uncounted

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/celengine"
)

// TestValuesOfBatch: the values and the selections of a batch are those of the library.
func TestValuesOfBatch(t *testing.T) {
	object := map[string]any{
		"s": "a", "n": int64(1), "f": 1.5, "b": true, "none": nil, "empty": map[string]any{}, "nothing": []any{},
		"m": map[string]any{"k": "v", "deep": map[string]any{"x": []any{int64(1), map[string]any{"y": nil}}}}, "texts": map[string]any{"a": "b"},
		"l": []any{"a", "b"}, "mixed": []any{"a", int64(1), nil, map[string]any{"k": "v"}, []any{"z"}},
	}
	expressions := append(boundedExpressions(),
		`object.s == "a" && object.n == 1 && object.f == 1.5 && object.b && object.none == null && object.n == 1.0`,
		`object.m.deep.x[0] == 1 && object["m"]["deep"].x[1].y == null && object.m.deep.x.size() == 2`,
		`object.no == 1`, `object.s.x == 1`, `object.none.x == 1`, `object.l.x == 1`, `object.l[2] == "a"`,
		`object.l["a"] == "a"`, `object.m[1] == 1`,
		`object.?no.x.orValue("d") == "d" && object.?m.k.orValue("d") == "v" && object.m.?no.orValue("d") == "d" && object.?m.deep.?x.orValue([]).size() == 2`,
		`object.?none.orValue("d") == null`, `object.?none.x.orValue("d") == "d"`, `object.?s.x.orValue("d") == "d"`,
		`object.?l.x.orValue("d") == "d"`, `object.?l[?0].orValue("d") == "a"`,
		`object.?l[?9].orValue("d") == "d" && object.?m[?"k"].orValue("d") == "v" && object.m[?"no"].orValue("d") == "d"`,
		`object.s.orValue("d") == "a"`, `object.no.orValue("d") == "d"`, `object.?s.orValue(object.no) == "a"`,
		`object.?no.orValue(object.no) == "a"`,
		`object.?no.or(object.?s).value() == "a" && object.?s.or(object.?no).hasValue() && !object.?no.or(object.?nope).hasValue()`,
		`object.s.or(object.?s).hasValue()`,
		`has(object.m.k) && !has(object.m.no) && has(object.none) && !has(object.no) && has(object.m.deep.x)`,
		`has(object.s.x)`, `has(object.none.x)`, `has(object.no.x)`, `has(object.no.x.z)`, `has(object.l.x)`,
		`has({"a": 1}.a) && !has({"a": 1}.b)`,
		`has(object.?no.x)`, `has(object.?m.k) && !has(object.?m.no)`,
		`[object.m, object.texts].exists(o, has(o.deep) && has(o.deep.x))`, `object.l.all(e, has(e.x))`,
		`"k" in object.m && !("no" in object.m) && "a" in object.l && !("c" in object.l) && !(1 in object.m) && 1 in object.mixed && null in object.mixed`,
		`object.m == object.m && object.texts == {"a": "b"} && object.texts != {"a": "c"} && object.empty == {} && object.nothing == [] && object.m != object.l`,
		`object.l == ["a", "b"] && object.l + ["c"] == ["a", "b", "c"] && (object.l + object.l)[3] == "b" && object.mixed[3].k == "v"`,
		`optional.ofNonZeroValue(object.empty).hasValue() || optional.ofNonZeroValue(object.nothing).hasValue() || optional.ofNonZeroValue(object.none).hasValue()`,
		`optional.ofNonZeroValue(object.m).hasValue() && optional.ofNonZeroValue(object.l).hasValue()`,
		`object.texts.all(k, object.texts[k] == "b") && object.m.exists(k, k == "deep") && object.mixed.filter(e, e == 1).size() == 1 && object.l.map(e, e + "x") == ["ax", "bx"]`,
		`object.texts.all(k, v, k == "a" && v == "b") && object.l.all(i, v, i < 2 && v != "")`,
		`object.mixed.all(e, e.k == "v")`, `object.mixed.exists(e, e.k == "v")`,
		`type(object.m) == map && type(object.l) == list && type(object.s) == string && type(object.n) == int && type(object.none) == null_type && type(object) == map`,
		`[{"m": 1}].all(object, object.m == 1)`, `[1].all(object, .object.s == "a")`,
		`(object.b ? object.m : object.texts).k == "v"`, `(object.b ? object.?m : object.?no).k.orValue("d") == "v"`,
		`object.l.map(e, {"name": e}).filter(o, o.name == "a").all(o, o.?name.orValue("") == "a" && o.?no.orValue("d") == "d")`,
		`object.l.exists_one(e, e == "a") && !object.l.exists_one(e, e != "") && object.texts.exists_one(k, k == "a") && !object.nothing.exists_one(e, e == 1)`,
		`object.l.map(e, e == "b", e + "x") == ["bx"] && object.texts.map(k, k) == ["a"] && object.texts.filter(k, k == "a") == ["a"] && object.nothing.map(e, e.no) == []`,
		`object.l.all(e, object.l.exists(e, e == "b") && e != "b") || object.l.filter(e, object.l.filter(f, f != e).size() == 1).map(e, [e]).map(e, e[0]) == ["a", "b"]`,
		`[0, 1].exists(n, 1 / n == 1)`, `[0, 2].exists(n, 1 / n == 1)`, `[0, 1].all(n, 1 / n == 2)`,
		`[0, 1].all(n, 1 / n == 1)`, `[1, 0].all(n, 1 / n == 1 || n == 0)`,
		`[0, 1].exists_one(n, 1 / n == 1)`, `[0, 1].filter(n, 1 / n == 1).size() == 1`, `[1, 0].map(n, 1 / n).size() == 2`,
		`[1, 0].map(n, n == 1, 1 / n).size() == 1`,
		`object.mixed.all(e, e)`, `object.mixed.exists(e, e)`, `object.mixed.exists_one(e, e)`,
		`object.mixed.filter(e, e).size() == 1`, `object.mixed.map(e, e, 1).size() == 1`,
		`object.s.all(e, true)`, `object.none.exists(e, true)`, `object.no.map(e, e) == []`,
		`object.n.filter(e, true) == []`, `object.empty.all(k, false) && !object.nothing.exists(e, true)`,
		`(object.l + ["c"] + object.l.map(e, e + e)).filter(e, e.size() == 1) == ["a", "b", "c"] && object.mixed.map(e, e) == object.mixed && object.l.map(e, object.m)[1].k == "v"`,
		`object.l.map(e, {e: [object.?no, object.?s]}).all(m, m.all(k, m[k][1].value() == "a" && !m[k][0].hasValue()))`,
		`object.l.map(object, object + "x") == ["ax", "bx"]`,
		`object.s.distinct() == [] || true`, `object.no.distinct() == [] || true`,
		`object.no.sort() == [] || object.b`, `object.l.sort() == ["a", "b"]`,
		`object.mixed.sort() == []`, `[object.l].flatten(1) == object.l`, `dyn(object.s).flatten(1) == [] || true`, `object.no.flatten(1) == []`,
		`object.l.sortBy(e, e) == object.l && object.l.distinct() == object.l`,
		`object.no.sortBy(e, e) == [] || true`, `object.mixed.distinct().size() == 5`,
		`"ab12".findAll("[a-z]") == object.l && object.s.find("[a-z]") == "a" && "b".find(object.s) == ""`,
		`object.l.join(",") == "a,b" && object.l.map(x, object.?no.orValue("y")).join("") == "yy" && object.mixed[4].join("") == "z"`,
	)
	expressions = append(expressions, errorExpressions()...)
	for _, text := range expressions {
		expressions = append(expressions, strings.ReplaceAll(text, "object", "params"))
	}
	for _, engine := range []celengine.Engine{celengine.OldestEngine, celengine.LatestEngine} {
		counted, c := compilersFor(t, engine)
		compared, exact := 0, 0
		for _, text := range expressions {
			parsed, issues := counted.SyntaxEnv().Parse(text)
			if issues.Err() != nil {
				t.Fatalf("%s: %v", text, issues.Err())
			}
			u := c.Compile(text, parsed)
			if u.Program == nil {
				continue // evaluated alone
			}
			compared++
			b := &Batch{plans: []plan{{}}, shared: []*Expression{u, u}}
			e := b.Evaluate(Inputs{Object: jsonAdapter{types.DefaultTypeAdapter}.object(object)})
			if _, ok := e.Read(&unstructured.Unstructured{Object: object}, nil); !ok {
				t.Fatal("the params are too large")
			}
			e.plan = &b.plans[0]
			accessor := &validating.ValidationCondition{Expression: text}
			tracked := counted.Expression(celengine.KnownVariables{}, accessor, celplugin.OptionalVariableDeclarations{HasParams: true}, nil).Result
			if tracked.Error != nil {
				t.Fatalf("%s: %v", text, tracked.Error)
			}
			want, _, err := tracked.Program.Eval(map[string]any{"object": object, "params": object})
			for slot := range e.values { // the second time, nested values are converted already
				got := e.value(slot)
				failure, failed := got.(*types.Err)
				if failed && IsExact(failure) {
					exact++
					if err == nil || err.Error() != failure.Error() {
						t.Errorf("%s in %s: got the error %v, want %v, %v", text, engine, got, want, err)
					}
				}
				onlyBatchFails := failed && !IsUnfinished(got) && err == nil && engine == celengine.LatestEngine
				differs := !failed && (err != nil || got.Equal(want) != types.True)
				if onlyBatchFails || differs {
					t.Errorf("%s in %s: got %v, want %v, %v", text, engine, got, want, err)
				}
			}
		}
		if compared < len(expressions)-4 || exact < 1000 {
			t.Errorf("%s: %d of %d expressions were compared, %d errors", engine, compared, len(expressions), exact)
		}
	}
}

// errorExpressions combine values and errors in every operator and macro that can ignore an error.
func errorExpressions() []string {
	parts := []string{"true", "false", `object.no == 1`, `object.m.other == 1`, `1 / 0 == 1`, `object.s`}
	elements := []string{
		"e == 1", "e == 2 || object.no == e", "e == 1 ? object.no == 1 : object.m.other == 1",
		"e == 2 ? 1 / 0 == 1 : object.no.x == e", "[true][e]",
	}
	var all []string
	for _, a := range parts {
		for _, b := range parts {
			all = append(all,
				"("+a+" ? "+b+" : object.m.third == 1) == true",
				"("+a+") == ("+b+")",
				"[dyn("+a+"), dyn("+b+")].size() == 2",
				"!("+a+") || ("+b+")",
			)
			for _, c := range parts {
				all = append(all, a+" && "+b+" || "+c, a+" && ("+b+" || "+c+")")
			}
		}
	}
	for _, condition := range elements {
		for _, list := range []string{"[0, 1, 2]", "[2, 1, 0]", "[1]", "[0, 0]"} {
			for _, macro := range []string{"all", "exists", "exists_one"} {
				macro := list + "." + macro + "(e, " + condition + ")"
				all = append(all, macro, macro+" || true", "false && "+macro)
			}
			for _, macro := range []string{"filter", "map"} {
				macro := list + "." + macro + "(e, " + condition + ")"
				all = append(all, macro+" == []", macro+" != [] || true")
			}
		}
		all = append(all,
			"[0, 1, 2].map(e, "+condition+", e == 1 ? object.no : object.m.other) == []",
			"[2, 1, 0].map(e, "+condition+", object.no) == []",
			"[0, 1, 2].all(i, e, "+condition+")",
			"[0, 1, 2].exists(i, e, "+condition+")",
			"[0, 1, 2].transformList(i, e, "+condition+") == []",
		)
	}
	return all
}

// TestLoops: the batch evaluates macros without the general loop of the library.
func TestLoops(t *testing.T) {
	tests := map[string]struct {
		expression string
		want       string // the function in place of the macro
	}{
		"all":                    {`[1].all(x, x == 1)`, allOf},
		"all, of several terms":  {`[1].all(x, x == 1 && x == 2)`, allOf},
		"exists":                 {`[1].exists(x, x == 1 || x == 2)`, existsOf},
		"exists_one":             {`[1].exists_one(x, x == 1)`, oneOf},
		"map":                    {`[1].map(x, x + 1)`, collected},
		"map with a condition":   {`[1].map(x, x > 0, x + 1)`, collected},
		"filter":                 {`[1].filter(x, x > 0)`, collected},
		"a map":                  {`object.map(x, x)`, collected},
		"with an index":          {`[1].all(i, x, x == i)`, ""},
		"a name for a value":     {`cel.bind(x, 1, x == 1)`, ""},
		"no macro but a sum":     {`1 + 1`, ""},
		"a list in no macro":     {`[1] + [2]`, ""},
		"a condition in no loop": {`true ? 1 : 2`, ""},
	}
	counted, c := compilersFor(t, celengine.LatestEngine)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			parsed, issues := counted.SyntaxEnv().Parse(tc.expression)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			got := ""
			if l, ok := c.Compile(tc.expression, parsed).Program.(*loop); ok {
				got = l.function
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// compilersFor returns the compilers of an engine, with and without costs.
func compilersFor(t *testing.T, engine celengine.Engine) (*celengine.Compiler, *Compiler) {
	t.Helper()
	counted := celengine.NewCompiler(engine)
	c, err := NewCompiler(counted.Environment())
	if err != nil {
		t.Fatal(err)
	}
	return counted, c
}
