package configurations

import (
	"context"

	"github.com/ostiary/ostiary/internal/registration"
)

// Proof tells whether API servers reach Ostiary.
type Proof interface {
	Proven(phase registration.Phase) bool
	Subscribe(ctx context.Context) <-chan struct{}
}

// promoted is the plan as far as it may be carried out: what fails closed is
// promoted to that by the proof that API servers reach Ostiary.
func (r *Reconciler) promoted(plan registration.Plan, observed []registration.Configuration) registration.Plan {
	if r.Proof == nil {
		return plan
	}
	return plan.Held(observed, r.Proof.Proven)
}
