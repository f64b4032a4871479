package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/policy"
)

// Paths of an evaluation, as in the metric ostiary_policy_evaluations_total.
const (
	pathBatch = "batch"
	pathAlone = "alone"
)

// PolicyCost says how Ostiary evaluates a policy.
type PolicyCost struct {
	Policy string `json:"policy"`
	// Path is batch if the policies of a call are evaluated together with it, without counting
	// costs, or alone if it has an evaluation of its own that counts them.
	Path string `json:"path"`
	// Sizes is the number of sizes of requests, of AllSizes, that are evaluated in the batch.
	Sizes    int `json:"sizes,omitempty"`
	AllSizes int `json:"allSizes,omitempty"`
	// Reason is why some requests, or all of them, are not.
	Reason string `json:"reason,omitempty"`
}

// showCosts shows which policies are evaluated in the batch.
func (c *command) showCosts(ctx context.Context, args []string) error {
	hasObject := slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "/") })
	if hasObject || c.object+c.old != "" {
		return errors.New("--cost is about all requests: remove the object")
	}
	s, err := c.Setting(ctx, c.In, c.ErrOut, policy.NewCompilerFor)
	if err != nil {
		return err
	}
	names, err := inputs.ChoosePolicies(s.Engine, args)
	if err != nil {
		return err
	}
	costs := make([]PolicyCost, len(names))
	for i, name := range names {
		costs[i] = costOf(name, s.Engine.Compiler.Batching(s.Engine.Policy(name)))
	}
	return s.Skipped.Result(c.writeCosts(costs))
}

func costOf(name string, b policy.Batching) PolicyCost {
	if b.Alone != "" {
		return PolicyCost{Policy: name, Path: pathAlone, Reason: b.Alone}
	}
	out := PolicyCost{Policy: name, Path: pathBatch, Sizes: b.Sizes, AllSizes: b.AllSizes}
	if larger := b.AllSizes - b.Sizes; larger > 0 {
		out.Reason = fmt.Sprintf("the largest requests, %d of %d size classes, are evaluated alone", larger, b.AllSizes)
	}
	return out
}

func (c *command) writeCosts(costs []PolicyCost) error {
	if !c.IsTable() {
		return c.Print(map[string]any{"policies": costs})
	}
	rows := make([][]string, len(costs))
	for i, cost := range costs {
		rows[i] = []string{cost.Policy, cost.Path, cost.Reason}
	}
	return output.WriteTable(c.Out, []string{"POLICY", "PATH", "REASON"}, rows)
}
