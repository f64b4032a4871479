package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// maxExamplesOfPolicy is the number of examples in the states of all bindings.
const maxExamplesOfPolicy = 10

// Source finds the evidence of the step in effect of a binding.
type Source func(b *v1alpha1.Binding, state *v1alpha1.BindingStatus, step *v1alpha1.RolloutStep) (objects, requests Evidence)

// All returns the next states of all bindings with a rollout, in their order. The policy has the last status. common has the
// facts that they share.
func All(common Facts, evidence Source) (states []v1alpha1.BindingStatus, events []Event, requeue time.Duration) {
	p := common.Policy
	common.Commands, _ = ParseCommands(p.Annotations[Annotation]) // what cannot be read has no effect
	left := maxExamplesOfPolicy
	for i := range p.Spec.Bindings {
		f := common
		if f.Binding = &p.Spec.Bindings[i]; f.Binding.Rollout == nil {
			continue
		}
		if f.Before = StateOf(p.Status.Bindings, f.Binding.Name); f.Before.Name != "" && evidence != nil {
			if at := indexOf(f.Binding.Rollout, f.Before.Step); at >= 0 && !f.Before.Final {
				f.Objects, f.Requests = evidence(f.Binding, &f.Before, &f.Binding.Rollout.Steps[at])
			}
		}
		state, recorded, after := Next(f)
		state.Examples = state.Examples[:min(len(state.Examples), left)]
		left -= len(state.Examples)
		states, events = append(states, state), append(events, recorded...)
		if after > 0 && (requeue == 0 || after < requeue) {
			requeue = after
		}
	}
	return states, events, requeue
}

// action says what the binding does in its state: "Warn 2/3", or "Deny".
func (m *machine) action() string {
	states := []v1alpha1.BindingStatus{m.state}
	states[0].Name = m.Binding.Name
	e := Effective(m.Binding, states)[0]
	var out []string
	if m.Policy.Spec.Mutates() {
		if e.MutationAction == v1alpha1.MutationActionPreview {
			out = append(out, string(e.MutationAction))
		} else {
			out = append(out, "Mutate")
		}
	}
	if m.Policy.Spec.Refuses() { // Deny or Warn, and then Audit
		actions := slices.Clone(e.ValidationActions)
		slices.SortFunc(actions, func(a, b admissionregistrationv1.ValidationAction) int { return strings.Compare(string(b), string(a)) })
		for _, a := range actions {
			out = append(out, string(a))
		}
	}
	return strings.Join(out, ",") + position(m.rollout, &states[0])
}

// position is where the state is in its rollout: " 2/3"; "" for the final action.
func position(r *v1alpha1.Rollout, s *v1alpha1.BindingStatus) string {
	if s.Final {
		return ""
	}
	return fmt.Sprintf(" %d/%d", max(0, indexOf(r, s.Step))+1, len(r.Steps))
}

// ActionsOf returns what a policy does, as in its status: the actions of all bindings, and the position of the rollout
// that is the least advanced.
func ActionsOf(p *v1alpha1.WebhookPolicy) string {
	text, states, least, where := InEffect(p).Spec.Actions(), Recorded(p), 2.0, ""
	for i := range p.Spec.Bindings {
		b := &p.Spec.Bindings[i]
		state := StateOf(states, b.Name)
		if b.Rollout == nil || state.Final || len(b.Rollout.Steps) == 0 {
			continue
		}
		if at := float64(max(0, indexOf(b.Rollout, state.Step))) / float64(len(b.Rollout.Steps)); at < least {
			least, where = at, position(b.Rollout, &state)
		}
	}
	return text + where
}
