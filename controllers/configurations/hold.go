package configurations

import (
	"context"

	"github.com/ostiary/ostiary/internal/registration"
)

// Proof reports whether API servers reach Ostiary.
type Proof interface {
	Proven(phase registration.Phase) bool
	Subscribe(ctx context.Context) <-chan struct{}
}

// holdUnproven returns the plan with webhooks held at failurePolicy Ignore in the
// phases in which it is not proven that API servers reach Ostiary.
func (r *Reconciler) holdUnproven(plan registration.Plan, observed []registration.Configuration) registration.Plan {
	if r.Proof == nil {
		return plan
	}
	return plan.HoldAtIgnore(observed, r.Proof.Proven)
}
