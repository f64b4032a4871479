package celengine

import (
	"math"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
)

// Functions that compare each element with each end before they begin: nothing can
// interrupt them, and their cost is added afterwards.
func TestComparisonsAreBounded(t *testing.T) {
	env := NewCompiler(LatestEngine).Environment().StoredExpressionsEnv()
	for name, expression := range map[string]string{
		"distinct":   `lists.range(6000).distinct()`,
		"contains":   `sets.contains(lists.range(6000), lists.range(6000))`,
		"equivalent": `sets.equivalent(lists.range(6000), lists.range(6000))`,
		"intersects": `sets.intersects(lists.range(6000), lists.range(6000))`,
	} {
		t.Run(name, func(t *testing.T) {
			checked, issues := env.Compile(expression)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			program, err := env.Program(checked, cel.CostLimit(math.MaxUint64))
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
