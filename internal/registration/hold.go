package registration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// HoldAtIgnore is the plan with the groups that fail closed held at Ignore, in the
// phases in which it has not been proven that API servers reach Ostiary: a new
// installation, or a firewall, must not refuse what no policy has seen.
//
// What fails closed in the API server already stays so, and so do the policies
// in it, to whatever group they move: only their author takes that back. The
// proof says nothing about backends, which are not held.
func (p Plan) HoldAtIgnore(observed []Configuration, proven func(Phase) bool) Plan {
	closed := map[Phase]set{PhaseMutate: {}, PhaseValidate: {}}
	for _, have := range observed {
		if group, ok := GroupOf(have); ok && failsClosed(Webhooks(have)) {
			for _, name := range Members(have) {
				closed[group.Phase][name] = struct{}{}
			}
		}
	}
	out := Plan{Groups: slices.Clone(p.Groups)}
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

// externalWebhook reports whether somebody else hosts what the group calls.
func (g *Group) isExternal() bool { return g.Path == "" }

func failsClosed(webhooks []webhook) bool {
	return slices.ContainsFunc(webhooks, func(w webhook) bool {
		return w.FailurePolicy != nil && *w.FailurePolicy == admissionregistrationv1.Fail
	})
}

// heldAtIgnore reports whether a webhook that is to fail closed does not yet, and
// differs in nothing else about failures.
func isHeldAtIgnore(want, have *webhook) bool {
	return *want.FailurePolicy == admissionregistrationv1.Fail &&
		have.FailurePolicy != nil && *have.FailurePolicy == admissionregistrationv1.Ignore
}

// HeldAtIgnore reports whether a policy with failurePolicy Fail is in a webhook whose
// failurePolicy is still Ignore.
func (v View) HeldAtIgnore(policy Entry) bool {
	return slices.ContainsFunc(policy.memberships, func(m membership) bool {
		c := v.states[member{m.settings.Phase, m.policy}]
		return c != nil && c.heldAtIgnore
	})
}
