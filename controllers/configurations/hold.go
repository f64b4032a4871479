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
func (t *term) holdUnproven(plan registration.Plan, observed []registration.Configuration) registration.Plan {
	return plan.HoldAtIgnore(observed, t.Proof.Proven)
}
