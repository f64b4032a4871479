package configurations

import (
	"context"
	"errors"
	"slices"

	"github.com/ostiary/ostiary/internal/registration"
)

// Own returns Ostiary's own configurations, which are not part of the plan: the
// canaries and the webhook that validates policies.
type Own func(ctx context.Context) ([]registration.Configuration, error)

// reconcileOwn creates and repairs Ostiary's own configurations. It deletes the one
// of the webhook that validates policies if that is disabled.
func (r *Reconciler) reconcileOwn(ctx context.Context, p *pass) error {
	if r.Own == nil {
		return nil
	}
	wants, err := r.Own(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, want := range wants {
		errs = append(errs, r.applyOwn(ctx, p, want))
	}
	review := p.observed[registration.Key{Phase: registration.PhaseValidate, Name: registration.ReviewConfiguration}]
	if review != nil && !slices.ContainsFunc(wants, func(want registration.Configuration) bool {
		return registration.KeyOf(want) == registration.KeyOf(review)
	}) {
		errs = append(errs, r.remove(ctx, registration.RefOf(review)))
	}
	return errors.Join(errs...)
}

// applyOwn writes one of Ostiary's own configurations if it differs.
func (r *Reconciler) applyOwn(ctx context.Context, p *pass, want registration.Configuration) error {
	have := p.observed[registration.KeyOf(want)]
	switch {
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
