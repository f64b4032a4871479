package registration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// HoldAtIgnore returns the plan with failurePolicy Ignore instead of Fail in the
// phases in which it is not proven that API servers reach Ostiary, so that a new
// installation behind a firewall denies no requests.
//
// Policies in an observed webhook with failurePolicy Fail keep it, also if they move
// to another group: only their author changes it. Groups of backends are not held,
// because the proof does not include backends.
func (p Plan) HoldAtIgnore(observed []Configuration, proven func(Phase) bool) Plan {
	closed := map[Phase]set{PhaseMutate: {}, PhaseValidate: {}}
	for _, have := range observed {
		if group, ok := GroupOf(have); ok && failsClosed(Webhooks(have)) {
			for _, name := range Members(have) {
				closed[group.Phase][name] = struct{}{}
			}
		}
	}
	out := Plan{Groups: slices.Clone(p.Groups), parts: p.parts}
	for i := range out.Groups {
		g := &out.Groups[i]
		if *g.webhook.FailurePolicy != admissionregistrationv1.Fail || g.isExternal() || proven(g.Phase) || slices.ContainsFunc(g.Members, closed[g.Phase].has) {
			continue
		}
		g.webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
		g.Configuration = clone(g.Configuration)
		setWebhooks(g.Configuration, []webhook{g.webhook})
	}
	return out
}

// isExternal reports whether the group calls a backend.
func (g *Group) isExternal() bool { return g.Path == "" }

func failsClosed(webhooks []webhook) bool {
	return slices.ContainsFunc(webhooks, func(w webhook) bool {
		return w.FailurePolicy != nil && *w.FailurePolicy == admissionregistrationv1.Fail
	})
}
