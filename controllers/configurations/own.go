package configurations

import (
	"context"

	"github.com/ostiary/ostiary/internal/registration"
)

// Own returns the configuration for Ostiary's own webhook, which is not part of
// the plan. Nil means that there is none.
type Own func(ctx context.Context) (registration.Configuration, error)

// reconcileOwn creates, repairs or deletes the configuration for Ostiary's own
// webhook. It does not write an equal one.
func (r *Reconciler) reconcileOwn(ctx context.Context, p *pass) error {
	if r.Own == nil {
		return nil
	}
	want, err := r.Own(ctx)
	if err != nil {
		return err
	}
	have := p.observed[key{registration.PhaseValidate, registration.ReviewConfiguration}]
	switch {
	case want == nil && have == nil:
		return nil
	case want == nil:
		return r.remove(ctx, registration.Ref{
			Phase: registration.PhaseOf(have), Name: have.GetName(), UID: have.GetUID(), ResourceVersion: have.GetResourceVersion(),
		})
	case have != nil && registration.Matches(have, want) && registration.Owned(have, want):
		return nil
	case have != nil && registration.CheckEpoch(want, have) != nil:
		return registration.CheckEpoch(want, have)
	case r.isBlocked(p, want):
		return nil // a later reconcile writes it
	}
	got, err := r.apply(ctx, want)
	if err == nil {
		r.recordWrite(have, want, got)
	}
	return err
}
