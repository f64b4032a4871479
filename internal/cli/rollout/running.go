package rollout

import (
	"strings"
	"time"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/rollout"
)

// Running is a rollout that has not reached its final action.
type Running struct {
	Policy  string `json:"policy"`
	Binding string `json:"binding"`
	// Action is what the binding does now, with its position: "Warn 2/3".
	Action string `json:"action,omitempty"`
	// Steps are the names of all steps in order, with that in effect in brackets.
	Steps string `json:"steps"`
	// State says for how long the step has been in effect, and whether it is held or paused.
	State  string `json:"state"`
	HeldBy string `json:"heldBy,omitempty"`
}

// RunningOf returns the rollouts of a policy that have not reached their final action.
func RunningOf(p *v1alpha1.WebhookPolicy, now time.Time) (out []Running) {
	for i := range p.Spec.Bindings {
		b := &p.Spec.Bindings[i]
		if b.Rollout == nil {
			continue
		}
		state := rollout.StateOf(p.Status.Bindings, b.Name)
		if state.Final {
			continue
		}
		at := indexOf(b.Rollout, &state)
		var names []string
		for j := range b.Rollout.Steps {
			name := b.Rollout.Steps[j].Name
			if j == max(at, 0) {
				name = "[" + name + "]"
			}
			names = append(names, name)
		}
		out = append(out, Running{
			Policy: p.Name, Binding: b.Name, Action: state.Action, Steps: strings.Join(append(names, finalStep), " > "),
			State: stateOf(&state, max(at, 0), at, now), HeldBy: state.HeldBy,
		})
	}
	return out
}
