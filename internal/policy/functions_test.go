package policy

import (
	"math"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
)

// TestExpressionsReachNothing: expressions have no function that calls a URL, reads
// the cluster or an image registry, or writes objects. Policy engines that have one
// act on behalf of the author of a policy.
func TestExpressionsReachNothing(t *testing.T) {
	for _, expression := range []string{
		`http.Get("http://169.254.169.254/").status == 200`,
		`resource.Get("v1", "secrets", "kube-system", "ca") != null`,
		`globalContext.Get("secrets", "") != null`,
		`image.GetMetadata("registry.example.com/a") != null`,
		`generator.apply("kube-system", [object])`,
		`kubernetes.list("v1", "Secret") != null`,
	} {
		t.Run(expression, func(t *testing.T) {
			if _, errs := sharedCompiler.Compile(policyFrom(t, "p", "validations: [{expression: '"+expression+"'}]")); len(errs) == 0 {
				t.Error("it compiles")
			}
		})
	}
}

// Functions that compare each element with each end before they begin: nothing can
// interrupt them, and their cost is added afterwards.
func TestComparisonsAreBounded(t *testing.T) {
	for name, expression := range map[string]string{
		"distinct":   `lists.range(6000).distinct()`,
		"contains":   `sets.contains(lists.range(6000), lists.range(6000))`,
		"equivalent": `sets.equivalent(lists.range(6000), lists.range(6000))`,
		"intersects": `sets.intersects(lists.range(6000), lists.range(6000))`,
	} {
		t.Run(name, func(t *testing.T) {
			checked, issues := sharedCompiler.parser.Compile(expression)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			program, err := sharedCompiler.parser.Program(checked, cel.CostLimit(math.MaxUint64))
			if err != nil {
				t.Fatal(err)
			}
			value, _, err := program.Eval(cel.NoVars())
			if want := "lists of 6000 and 6000 elements are too long to compare each with each"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, %v; want the error %q", value, err, want)
			}
		})
	}
}
