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
func (t *term) reconcileOwn(ctx context.Context, p *pass) error {
	wants, err := t.Own(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, want := range wants {
		errs = append(errs, t.applyOwn(ctx, p, want))
	}
	review := p.observed[registration.Key{Phase: registration.PhaseValidate, Name: registration.ReviewConfiguration}]
	if review != nil && !slices.ContainsFunc(wants, func(want registration.Configuration) bool {
		return registration.KeyOf(want) == registration.KeyOf(review)
	}) {
		errs = append(errs, t.remove(ctx, registration.RefOf(review)))
	}
	return errors.Join(errs...)
}

// applyOwn writes one of Ostiary's own configurations if it differs.
func (t *term) applyOwn(ctx context.Context, p *pass, want registration.Configuration) error {
	have := p.observed[registration.KeyOf(want)]
	switch {
	case have != nil && registration.Matches(have, want) && registration.Owned(have, want):
		return nil
	case have != nil && registration.CheckEpoch(want, have) != nil:
		return registration.CheckEpoch(want, have)
	case t.isBlocked(p, want):
		return nil // a later reconcile writes it
	}
	got, err := t.apply(ctx, want)
	if err == nil {
		t.recordWrite(have, want, got)
	}
	return err
}
