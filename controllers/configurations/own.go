package configurations

import (
	"context"

	"github.com/ostiary/ostiary/internal/registration"
)

// Own says what is to be registered for Ostiary itself, beside the plan of the
// policies; nil is nothing.
type Own func(ctx context.Context) (registration.Configuration, error)

// reconcileOwn makes the configuration of Ostiary itself as it is wanted. Like
// those of policies it is repaired, and not touched where it is right.
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
	case have != nil && registration.Carries(have, want) && registration.Owned(have, want):
		return nil
	case have != nil && registration.Behind(want, have) != nil:
		return registration.Behind(want, have)
	case r.held(p, want):
		return nil // it is tried again
	}
	got, err := r.apply(ctx, want)
	if err == nil {
		r.remember(have, want, got)
	}
	return err
}
