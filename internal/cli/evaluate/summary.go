package evaluate

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/policy"
)

// Group counts the objects of a namespace for which a policy has the same decision.
type Group struct {
	Policy    string          `json:"policy"`
	Namespace string          `json:"namespace,omitempty"`
	Decision  policy.Decision `json:"decision"`
	Count     int             `json:"count"`
	// Example is the first of the objects.
	Example string `json:"example"`
}

// summaryOf counts objects, sorted by policy, namespace and decision. An object counts once for a policy that has
// the same decision in both phases.
func summaryOf(all []Evaluation) []Group {
	out := []Group{} // an empty list in JSON
	for _, e := range all {
		seen := map[Group]bool{}
		for _, d := range e.Decisions {
			g := Group{Policy: d.Policy, Namespace: e.Namespace, Decision: d.Decision, Count: 1, Example: e.Object}
			if !seen[g] {
				seen[g] = true
				out = append(out, g)
			}
		}
	}
	slices.SortStableFunc(out, compareGroups)
	merged := out[:0]
	for _, g := range out {
		if last := len(merged) - 1; last >= 0 && compareGroups(merged[last], g) == 0 {
			merged[last].Count++
		} else {
			merged = append(merged, g)
		}
	}
	return merged
}

func compareGroups(a, b Group) int {
	return cmp.Or(
		cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Decision, b.Decision))
}

func (c *command) writeSummary(groups []Group) error {
	if c.Format != output.Table {
		return c.Print(groups)
	}
	var rows [][]string
	for _, g := range groups {
		rows = append(rows, []string{g.Policy, g.Namespace, string(g.Decision), strconv.Itoa(g.Count), g.Example})
	}
	return output.WriteTable(c.Out, []string{"POLICY", "NAMESPACE", "DECISION", "OBJECTS", "EXAMPLE"}, rows)
}
