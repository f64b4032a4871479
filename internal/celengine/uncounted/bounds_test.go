package uncounted

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/test/bench"
)

// boundedExpressions have every function whose cost is bounded.
func boundedExpressions() []string {
	return []string{
		`object.a == object.b || object.a != object.b || object.n < 3 || object.n <= 3 || object.n > 3 || object.n >= 3`,
		`object.l == object.l && object.m == object.m`,
		`object.a < object.b && object.a <= object.b && object.a > object.b && object.a >= object.b`,
		`object.a in object.l && object.a in object.m && object.a in ["a", "b"]`,
		`object.a + object.b + object.a == object.b + "x"`,
		`object.l + object.l + [object.a] == object.l`,
		`(object.l + object.l).all(x, (object.l + object.l).exists(z, x == z))`,
		`object.n + 1 - 2 * 3 / 4 % 5 == -object.n`,
		`object.l[0] == object.m["k"] && object.?absent.orValue("x") == "x" && object.l[?7].hasValue()`,
		`object.?m.k.or(optional.of("a")).value() == "a" || optional.ofNonZeroValue(object.a).hasValue() || optional.none().hasValue()`,
		`object.a.startsWith(object.b) || object.a.endsWith(object.b) || object.a.contains(object.b)`,
		`object.a.matches("^[a-z]+(-[a-z]+)*$") || object.a.matches(object.b)`,
		`string(object.n) == "1" && string(object.a) == "b" && int("1") == 1 && uint(1) == uint(1) && double(1) == 1.0 && bool("true")`,
		`object.a.lowerAscii() + object.a.upperAscii() + object.a.trim() + object.a.substring(0) + object.a.charAt(0) == "a"`,
		`object.a.split("a").map(x, x + "b").join("c") == object.l.join(object.b)`,
		`object.a.replace("a", object.b) == object.b.replace("", "xy")`,
		`object.l.map(x, x + object.a).filter(x, x.contains("a")).size() == size(object.a)`,
		`object.l.map(x, object.l.map(z, x + z)).all(l, l.all(t, t != ""))`,
		`object.l.exists_one(x, x == object.a) ? object.m.all(k, object.m[k] != "") : object.m.exists(k, k == "a")`,
		`quantity("1Gi").isGreaterThan(quantity("1Mi")) && quantity("1").isLessThan(quantity("2")) && quantity("1").compareTo(quantity("1")) == 0 && isQuantity(object.a)`,
		`quantity("3").isInteger() && quantity("3").asInteger() == 3`,
		`isIP(object.a) || ip("10.0.0.1") == ip("10.0.0.1") || isCIDR(object.a) || cidr("10.0.0.0/8") == cidr("10.0.0.0/8") || isURL(object.a) || url("https://example.com/a") == url("https://example.com/a")`,
		`{"a": object.a, "b": object.b}.all(k, k != "") && [[object.a], [object.b, object.a]].all(l, l.size() > 0)`,
		`object.?l.optMap(x, (x + [object.a]).filter(z, z in x)).orValue([]).all(x, x in object.l) && object.?a.optFlatMap(x, optional.of(x + x)).hasValue()`,
		`has(object.a) && !has(object.c) && !(object.n == 2)`,
	}
}

// TestBounds compares the bound of the cost of an expression with the cost that CEL counts, and the bound of the extent
// of its value with the value.
func TestBounds(t *testing.T) {
	all := boundedExpressions()
	for _, name := range []string{bench.B, bench.R, bench.V} {
		policies, err := bench.Policies(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			for _, text := range celsyntax.Expressions(&p.Spec) {
				all = append(all, inlined(text, &p.Spec))
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var rows []boundsRow
	for range 20 {
		object := randomPod(random)
		size := extentOf(object)
		size.elements = max(size.elements, size.nested)
		size.nested = size.elements
		rows = append(rows, boundsRow{size: size, values: map[string]any{
			"object":    object,
			"oldObject": nil,
			"request":   map[string]any{"userInfo": map[string]any{"groups": []any{}}},
			"variables": map[string]any{},
		}})
	}
	var inputs []cel.EnvOption
	for _, name := range []string{"object", "oldObject", "request", "variables"} {
		inputs = append(inputs, cel.Variable(name, cel.DynType))
	}
	mostSucceed(t, checkBounds(t, newBoundsEnv(t, celengine.LatestEngine, inputs), all, rows))
}

// TestBoundsOfVariables compares the bounds of the values of a policy's variables with the values, and the bounds of the
// costs of what reads them with the costs.
func TestBoundsOfVariables(t *testing.T) {
	var inputs []cel.EnvOption
	for _, name := range []string{"object", "oldObject", "request", "variables", "params", "namespaceObject", "authorizer"} {
		inputs = append(inputs, cel.Variable(name, cel.DynType))
	}
	env := newBoundsEnv(t, celengine.LatestEngine, inputs)
	random := rand.New(rand.NewPCG(5, 6))
	compared, smaller := 0, 0
	for _, name := range []string{bench.B, bench.R, bench.R2, bench.V} {
		policies, err := bench.Policies(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			object := randomPod(random)
			object["kind"] = "Pod"
			c, s := env.checkVariables(t, &p.Spec, object)
			compared, smaller = compared+c, smaller+s
		}
	}
	t.Logf("%d expressions, %d sizes below the limit", compared, smaller)
	if compared < 100 || smaller < 50 {
		t.Errorf("%d expressions were compared, with %d sizes below the limit: the sets have lost their variety", compared, smaller)
	}
}

// checkVariables returns how many expressions that read variables were compared, and how many variables have a bound
// below the limit. It ends at the first variable without a value, as a batch does.
func (env boundsEnv) checkVariables(t *testing.T, spec *v1alpha1.WebhookPolicySpec, object map[string]any) (compared, smaller int) {
	t.Helper()
	limit := extentOf(object)
	limit.elements = max(limit.elements, limit.nested)
	limit.nested = limit.elements
	limit.text, limit.weight = max(limit.text, 16), limit.weight+1
	values := map[string]any{}
	inputs := map[string]any{
		"object": object, "oldObject": nil, "params": nil, "namespaceObject": nil, "authorizer": nil, "variables": values,
		"request": map[string]any{"operation": "CREATE", "userInfo": map[string]any{"groups": []any{}}},
	}
	var variables []namedRoot
	for _, v := range spec.Variables {
		root, value, size := env.checkCost(t, v.Expression, inputs, limit, sizesOf(variables, limit))
		if value == nil || !measure(value).fits(limit) {
			return compared, smaller
		}
		if got := measure(value); !got.fits(size) {
			t.Errorf("%s: a value of %+v, bound %+v", v.Expression, got, size)
		}
		if size.elements < limit.elements || size.text < limit.text {
			smaller++
		}
		variables = append(variables, namedRoot{v.Name, root})
		values[v.Name] = value
	}
	for _, v := range spec.Validations {
		if root, _, _ := env.checkCost(t, v.Expression, inputs, limit, sizesOf(variables, limit)); root != nil {
			compared++
		}
	}
	return compared, smaller
}

// checkCost evaluates an expression, and returns its syntax tree, its value, and the bound of its extent. All are nil for
// an expression that a batch does not compile, and the value for an error.
func (env boundsEnv) checkCost(
	t *testing.T,
	text string,
	inputs map[string]any,
	limit extent,
	variables map[string]extent,
) (ast.Expr, ref.Val, extent) {
	t.Helper()
	checked, issues := env.check.Compile(text)
	if issues.Err() != nil {
		return nil, nil, extent{}
	}
	program, err := env.check.Program(checked, cel.CostLimit(math.MaxUint64))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	root := checked.NativeRep().Expr()
	most, size := bound(root, limit, variables)
	value, details, err := program.Eval(inputs)
	if details == nil || details.ActualCost() == nil {
		t.Fatalf("%s: no cost: %v", text, err)
	}
	if cost := *details.ActualCost(); float64(cost) > most {
		t.Errorf("%s: cost %d, bound %v", text, cost, most)
	}
	if err != nil {
		return root, nil, size
	}
	size.weight += 1e-6 // sums in another order differ
	return root, value, size
}

func mostSucceed(t *testing.T, r boundsResult) {
	t.Helper()
	if r.evaluated < r.bounded/2 {
		t.Errorf("%d of %d evaluations succeeded: most of them say little", r.evaluated, r.bounded)
	}
}

// boundsResult has the numbers of evaluations, and of those without an error, and the overloads that are called.
type boundsResult struct {
	bounded, evaluated int
	called             map[string]bool
}

// earlierExpression compiles in earlier engines only.
const earlierExpression = "duration(n)"

// boundsRow has values of variables, and an extent of each of them.
type boundsRow struct {
	values map[string]any
	size   extent
}

// boundsEnv checks expressions as a batch does, and as Kubernetes does.
type boundsEnv struct {
	syntax, check *cel.Env
}

func newBoundsEnv(t *testing.T, engine celengine.Engine, inputs []cel.EnvOption) boundsEnv {
	t.Helper()
	compiler := celengine.NewCompiler(engine)
	set, err := compiler.Environment().Extend(environment.StrictCostOpt)
	if err != nil {
		t.Fatal(err)
	}
	env, err := set.StoredExpressionsEnv().Extend(inputs...)
	if err != nil {
		t.Fatal(err)
	}
	return boundsEnv{syntax: compiler.SyntaxEnv(), check: env}
}

func checkBounds(t *testing.T, env boundsEnv, all []string, rows []boundsRow) boundsResult {
	t.Helper()
	result := boundsResult{called: map[string]bool{}}
	for _, text := range all {
		parsed, issues := env.syntax.Parse(text)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", text, issues.Err())
		}
		checked, issues := env.check.Check(parsed)
		switch {
		case issues.Err() != nil && text == earlierExpression:
			continue
		case issues.Err() != nil:
			t.Errorf("%s: %v", text, issues.Err())
			continue
		}
		native, issues := env.check.Compile(text)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", text, issues.Err())
		}
		for _, reference := range checked.NativeRep().ReferenceMap() {
			if len(reference.OverloadIDs) == 1 {
				result.called[reference.OverloadIDs[0]] = true
			}
		}
		program, err := env.check.Program(native, cel.CostLimit(math.MaxUint64))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, row := range rows {
			limit, size := bound(checked.NativeRep().Expr(), row.size, nil)
			if math.IsInf(limit, 1) || math.IsNaN(limit) {
				t.Errorf("%s: the cost is not bounded", text)
				break
			}
			result.bounded++
			out, details, err := program.Eval(row.values)
			if details == nil || details.ActualCost() == nil {
				t.Fatalf("%s: no cost: %v", text, err)
			}
			if cost := *details.ActualCost(); float64(cost) > limit {
				t.Errorf("%s: cost %d, bound %v", text, cost, limit)
			}
			if err != nil {
				continue
			}
			result.evaluated++
			got := measure(out)
			got.weight -= 1e-6 // sums in another order differ
			if !got.fits(size) {
				t.Errorf("%s: a value of %+v, bound %+v", text, got, size)
			}
		}
	}
	return result
}

// inlined replaces variables by their expressions.
func inlined(text string, spec *v1alpha1.WebhookPolicySpec) string {
	for i := len(spec.Variables) - 1; i >= 0; i-- {
		text = strings.ReplaceAll(text, "variables."+spec.Variables[i].Name, "("+spec.Variables[i].Expression+")")
	}
	return text
}

// randomPod has the fields of boundedExpressions, and is a Pod.
func randomPod(random *rand.Rand) map[string]any {
	text := func() string {
		return strings.Repeat("ab-", random.IntN(4)) + strings.Repeat("a", random.IntN(200)*random.IntN(2)) + "a"
	}
	var list, containers []any
	entries := map[string]any{"k": text()}
	for range 1 + random.IntN(20) {
		list = append(list, text())
		entries[text()] = text()
		containers = append(containers, map[string]any{
			"name": text(), "image": "registry.example.com/" + text() + ":1.2.3",
			"resources": map[string]any{
				"requests": map[string]any{"cpu": "1", "memory": "1Gi"},
				"limits":   map[string]any{"cpu": "2", "memory": "2Gi"},
			},
			"ports":           []any{map[string]any{"containerPort": int64(8080)}},
			"env":             []any{map[string]any{"name": text(), "value": text()}},
			"securityContext": map[string]any{"capabilities": map[string]any{"drop": []any{"ALL", text()}, "add": []any{text()}}},
		})
	}
	return map[string]any{
		"a": text(), "b": text(), "n": int64(random.IntN(5)), "l": list, "m": entries,
		"metadata": map[string]any{"name": text(), "labels": entries, "annotations": entries},
		"spec": map[string]any{
			"containers": containers,
			"volumes":    []any{map[string]any{"name": text(), "configMap": map[string]any{"name": text()}}},
		},
	}
}
