package doctor

import (
	"fmt"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/registration"
)

// severalCalls finds resources for which a request can call several of Ostiary's own webhooks in a phase.
func (c *checker) severalCalls() {
	for _, s := range registration.SeveralCallsOf(c.Configurations()) {
		kind, phase := kindValidating, "validating"
		if s.Phase == registration.PhaseMutate {
			kind, phase = kindMutating, "mutating"
		}
		why := "their policies differ in what has no field of a webhook: the order, the apiVersions, or podTemplates"
		if len(s.Differences) > 0 {
			why = "they differ in " + output.Some(s.Differences)
		}
		c.report(Info, "several-calls", Object{Kind: kind, Name: s.Configurations[0]}, "",
			fmt.Sprintf("a request for %s can cost %d %s calls, because %s: %s",
				s.Resource, len(s.Configurations), phase, why, output.Some(s.Configurations)),
			"give the policies the same settings where it is right for both: kubectl ostiary status -o wide shows the webhooks of each policy")
	}
}

// Configurations returns the webhook configurations of both kinds.
func (d *Dump) Configurations() []registration.Configuration {
	var out []registration.Configuration
	for i := range d.Mutating {
		out = append(out, &d.Mutating[i])
	}
	for i := range d.Validating {
		out = append(out, &d.Validating[i])
	}
	return out
}
