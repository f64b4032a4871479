package lint

import (
	"context"
	"slices"

	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/cli/policytest"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// withoutRefuted removes the findings that a policy denies everything, if a case of a PolicyTest in
// the same files passes and the policy allows its request. Tests that cannot be read refute nothing.
func (c *command) withoutRefuted(ctx context.Context, findings []Finding) []Finding {
	isDenial := func(f Finding) bool { return f.kind == advice.DeniesAll }
	files := slices.DeleteFunc(slices.Clone(c.Files), func(file string) bool { return file == "-" })
	if !slices.ContainsFunc(findings, isDenial) || len(files) == 0 {
		return findings
	}
	options := policytest.LoadOptions{AllowRemote: c.AllowRemote, Skip: func(error) {}}
	suites, err := policytest.Load(ctx, files, options)
	if err != nil {
		return findings
	}
	allowing := allowedIn(ctx, suites)
	return slices.DeleteFunc(findings, func(f Finding) bool { return isDenial(f) && allowing[f.Policy] })
}

// allowedIn returns the names of policies that allow the request of a case that passes.
func allowedIn(ctx context.Context, suites []*policytest.Suite) map[string]bool {
	out := map[string]bool{}
	for _, s := range suites {
		for _, test := range s.Cases {
			problems, result, err := test.Check(ctx)
			if err != nil || len(problems) > 0 {
				continue
			}
			for _, o := range result.Outcomes {
				if isAllowed(o) {
					out[o.Policy] = true
				}
			}
		}
	}
	return out
}

func isAllowed(o offline.Outcome) bool {
	return o.Decision == policy.DecisionAllow || o.Decision == policy.DecisionAnnotate
}
