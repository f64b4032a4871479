package policy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
)

// maxExpression is that of the CustomResourceDefinition, in characters.
const maxExpression = 16_384

// filled are validations with as much of the unit as bounds let in.
func filled(prefix, unit, separator, suffix string, units, of int) *v1alpha1.WebhookPolicy {
	p := &v1alpha1.WebhookPolicy{}
	for i := 0; units > 0; i++ {
		n := min(units, of, (maxExpression-len(prefix)-len(suffix)-8)/(len(unit)+len(separator)))
		expression := prefix + strings.TrimSuffix(strings.Repeat(unit+separator, n), separator) + suffix + strings.Repeat(" ", i%8)
		p.Spec.Validations = append(p.Spec.Validations, v1alpha1.Validation{Expression: expression})
		units -= n
	}
	return p
}

func doubling(n int) *v1alpha1.WebhookPolicy {
	p := &v1alpha1.WebhookPolicy{}
	for i := range n {
		v := admissionregistrationv1.Variable{Name: fmt.Sprint("v", i), Expression: "1"}
		if i > 0 {
			v.Expression = fmt.Sprintf("{variables.v%d: variables.v%d}", i-1, i-1)
		}
		p.Spec.Variables = append(p.Spec.Variables, v)
	}
	return p
}

func spent(f func()) (bytes uint64, took time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	took = time.Since(began)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, took
}

const all = 1 << 20

// What takes longest to compile is refused before it is compiled.
func TestPoliciesTooCostlyToCompile(t *testing.T) {
	for name, tt := range map[string]struct {
		policy *v1alpha1.WebhookPolicy
		want   string
	}{
		"nodes":            {filled("", "true", "&&", "", 40_000, all), "more than 32768 constants"},
		"calls":            {filled("", "1==1", "&&", "", 600, all), "more than 512 calls"},
		"calls together":   {filled("", "1==1", "&&", "", 5000, 100), "more than 4096 together"},
		"empty lists":      {filled("[", "[]", ",", "].size() > 0", 5000, all), "more than 512 macros"},
		"empty maps":       {filled("[", "{}", ",", "].size() > 0", 5000, all), "more than 512 macros"},
		"macros":           {filled("", "[1].all(x, true)", "&&", "", 900, 5), "more than 512 macros"},
		"keys":             {filled("[1]", ".map(x, {x: x})", "", ".size() > 0", 40, all), "more than 8 keys"},
		"types":            {doubling(40), "spec.variables[5].expression: Invalid value: "},
		"one pattern":      {filled(`"".matches("`, `(abcdefgh){1000}`, "", `")`, 20, all), "regular expressions of this policy are too large"},
		"many patterns":    {filled("", `"".matches("a{1000}")`, "&&", "", 700, 50), "regular expressions of this policy are too large"},
		"patterns to find": {filled("", `"".find("a{1000}") == ""`, "&&", "", 700, 50), "regular expressions of this policy are too large"},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			bytes, took := spent(func() {
				compiled, errs := NewCompiler().Compile(tt.policy)
				got = errs.ToAggregate().Error()
				if compiled.mutator.err == nil {
					t.Error("the policy answers without its error")
				}
			})
			if !strings.Contains(got, tt.want) {
				t.Errorf("Compile() = %.200s, want %q", got, tt.want)
			}
			if bytes > 256<<20 {
				t.Errorf("the refusal took %d MiB", bytes>>20)
			}
			t.Logf("%d MiB, %v", bytes>>20, took)
		})
	}
}

// The worst policies that are compiled take a bounded amount of memory.
func TestWorstPoliciesThatCompile(t *testing.T) {
	const text = 2*celsyntax.MaxNodes - 400
	for name, p := range map[string]*v1alpha1.WebhookPolicy{
		"numbers":           filled("[", "1", ",", "].size() > 0", text/2, all),
		"string constants":  filled("[", "'"+strings.Repeat("a", 1000)+"'", ",", "].size() > 0", 1500, all),
		"conjunctions":      filled("", "true", "&&", "", text/6, all),
		"comparisons":       filled("", "1==1", "&&", "", celsyntax.MaxCalls, celsyntax.MaxCallsOfOne),
		"quantities":        filled("", "quantity('1')==quantity('1')", "&&", "", celsyntax.MaxCalls/3, celsyntax.MaxCallsOfOne/3),
		"type errors":       filled("", "(1+'')", "&&", "", celsyntax.MaxCalls, celsyntax.MaxCallsOfOne),
		"undeclared":        filled("", "has(a.b)", "&&", "", text/10, all),
		"syntax errors":     filled("", "object.", "", "", text/7, all),
		"empty lists":       filled("[", "[]", ",", "].size() > 0", celsyntax.MaxOpenTypes, all),
		"empty maps":        filled("[", "{}", ",", "].size() > 0", celsyntax.MaxOpenTypes, all),
		"macros":            filled("[", "[1].map(x,x)", ",", "].size() > 0", celsyntax.MaxOpenTypes/2, all),
		"no options":        filled("[", "optional.none()", ",", "].size() > 0", celsyntax.MaxCalls/2, celsyntax.MaxCallsOfOne-2),
		"options":           filled("", "optional.none()!=optional.of(1)", "&&", "", celsyntax.MaxCalls/3, celsyntax.MaxCallsOfOne/3),
		"keys":              filled("["+strings.Repeat("[", 30)+"1"+strings.Repeat("]", 30)+"]", ".map(x, {x: x})", "", ".size() > 0", 4*celsyntax.MaxComputedKeys, celsyntax.MaxComputedKeys),
		"patterns":          filled("", `"".matches("a{1000}")`, "&&", "", celsyntax.MaxPattern/3003, 20),
		"classes":           filled(`"".matches("`, `\\pL`, "", `")`, 60, all),
		"indexes":           filled("", "[1][0]==1", "&&", "", celsyntax.MaxCalls/2, celsyntax.MaxCallsOfOne/2),
		"authorizer checks": filled("", "authorizer.path('/').check('get').allowed()", "&&", "", celsyntax.MaxCalls/3, celsyntax.MaxCallsOfOne/3),
	} {
		t.Run(name, func(t *testing.T) {
			compiler := NewCompiler()
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var compiled *Compiled
			bytes, took := spent(func() { compiled, _ = compiler.Compile(p) })
			runtime.GC()
			runtime.ReadMemStats(&after)
			live := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d MiB allocated, %d KiB kept, %v", bytes>>20, live>>10, took)
			if live > 64<<20 || bytes > 4<<30 {
				t.Errorf("%d MiB are kept and %d were allocated, want at most 64 and 4096", live>>20, bytes>>20)
			}
			if compiled.mutator.err != nil && !strings.Contains(name, "errors") && name != "undeclared" {
				t.Errorf("the policy does not compile: %.200s", compiled.mutator.err)
			}
		})
	}
}
