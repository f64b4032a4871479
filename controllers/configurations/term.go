package configurations

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/registration"
)

// term is one term of leadership. It writes those planned configurations that differ, and
// remembers its own writes. What an earlier term of this replica wrote says nothing about
// the configurations of today, because another leader may have changed them since.
type term struct {
	Dependencies
	start time.Time
	// namespaceDeleted is whether the namespace was being deleted when it last existed.
	namespaceDeleted bool
	// written is the result of the last write, while the cache may be older.
	written map[registration.Key]registration.Configuration
	// applied is the content of the last write.
	applied map[registration.Key]registration.Configuration
	// touchAt is the time at which API servers need another event; see touch.
	touchAt map[registration.Key]time.Time
	// existing are the configurations of the last pass, nil before the first one.
	existing map[registration.Key]bool
	// deleted are the times at which configurations were found to be gone.
	deleted map[registration.Key]time.Time
	// propagating are recent writes that API servers may not call by yet.
	propagating map[registration.Key]propagation
	// probedConditions are match conditions that the API server accepts.
	probedConditions map[string]struct{}
}

// newTerm returns a term that begins now.
func newTerm(d Dependencies) *term {
	return &term{
		Dependencies:     d,
		start:            d.Clock.Now(),
		written:          map[registration.Key]registration.Configuration{},
		applied:          map[registration.Key]registration.Configuration{},
		touchAt:          map[registration.Key]time.Time{},
		deleted:          map[registration.Key]time.Time{},
		propagating:      map[registration.Key]propagation{},
		probedConditions: map[string]struct{}{},
	}
}

// Reconcile observes the configurations, finds the desired ones, writes those that differ,
// and reports what is written.
func (t *term) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if deleting, err := t.isNamespaceDeleting(ctx); err != nil || deleting {
		if err == nil {
			err = t.deleteAll(ctx)
		}
		return ctrl.Result{}, err
	}
	state := t.Store.State()
	if state == nil || !state.Registrable {
		return ctrl.Result{}, nil // each new state enqueues the request
	}
	observed, err := t.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := newPass(observed)
	p.gate = t.Gate.Snapshot(ctx, state)
	// Own configurations come last, so that no policy waits for them.
	if err := errors.Join(t.reconcilePlan(ctx, p, state, observed), t.reconcileOwn(ctx, p)); err != nil {
		return ctrl.Result{}, err
	}
	err = t.touch(ctx, p)
	t.finishPropagation(p)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: t.requeueAfterPass(p)}, nil
}

// reconcilePlan writes the configurations of call groups.
func (t *term) reconcilePlan(
	ctx context.Context, p *pass, state *policies.State, observed []registration.Configuration,
) error {
	desired, err := t.desired(ctx, p, state.Plan, observed)
	if err != nil {
		return err
	}
	if err := t.write(ctx, p, registration.Diff(desired, observed)); err != nil {
		return err
	}
	return t.report(ctx, p, state, desired)
}

// desired returns the plan as it can be written now: webhooks have failurePolicy Ignore in
// the phases in which it is not proven that API servers reach Ostiary, and no configuration
// has a deleted owner.
func (t *term) desired(
	ctx context.Context, p *pass, plan registration.Plan, observed []registration.Configuration,
) (registration.Plan, error) {
	if err := checkEpochs(plan, observed); err != nil {
		return registration.Plan{}, err
	}
	return t.withoutDeletedOwners(ctx, p, plan.HoldAtIgnore(observed, t.Proof.Proven))
}

// report passes on to the other controllers which policies wait for replicas, which ones the API
// server rejects, and how many configurations there are.
func (t *term) report(ctx context.Context, p *pass, state *policies.State, written registration.Plan) error {
	if wait := t.Gate.Publish(p.gate); wait > 0 {
		p.requeueWithin(wait)
	}
	if err := t.resolveRejections(ctx, state, p.rejections); err != nil {
		return err
	}
	t.Metrics.count(written)
	return nil
}

// write applies changes. A blocked or rejected configuration delays only the
// removals that depend on it.
func (t *term) write(ctx context.Context, p *pass, changes registration.Changes) error {
	additive, removing := p.split(changes.Apply)
	if err := t.applyAll(ctx, p, additive); err != nil {
		return err
	}
	for _, want := range removing {
		if p.wouldDrop(want) {
			continue
		}
		if err := t.applyAll(ctx, p, []registration.Configuration{want}); err != nil {
			return err
		}
	}
	for _, ref := range changes.Delete {
		if p.wouldDropAny(ref) {
			continue
		}
		if err := t.remove(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// prepare reports whether to write a configuration now.
func (t *term) prepare(ctx context.Context, p *pass, want registration.Configuration) (bool, error) {
	waits, err := t.mustWait(ctx, p, want)
	switch {
	case err != nil:
		return false, err
	case waits:
		p.postpone(want)
		return false, nil
	}
	err = t.probeCondition(ctx, want)
	if isRejection(err) {
		p.reject(want, err)
		return false, nil
	}
	return err == nil, err
}

// mustWait reports whether a configuration must not be written yet.
func (t *term) mustWait(ctx context.Context, p *pass, want registration.Configuration) (bool, error) {
	if t.isBlocked(p, want) {
		return true, nil
	}
	if p.observed[registration.KeyOf(want)] != nil {
		return false, nil
	}
	orphan, err := t.isOrphan(ctx, want)
	if orphan {
		p.requeueWithin(time.Second)
	}
	return orphan, err
}

// isBlocked reports whether replicas or a conflict delay the write.
func (t *term) isBlocked(p *pass, want registration.Configuration) bool {
	return p.gate.Blocks(want) || t.isBackingOff(p, want)
}

// requeueAfterPass returns the time until the next reconcile without an event.
func (t *term) requeueAfterPass(p *pass) time.Duration {
	next := p.requeueAfter
	if after := t.Conflicts.expire(t.Clock.Now()); after > 0 && (next == 0 || after < next) {
		next = after
	}
	return next
}

// checkEpochs returns an error if another process has published a newer trust
// bundle than the one in the plan. All groups of a plan have one epoch. Ostiary's
// own configurations may have a newer one than the plan for a moment.
func checkEpochs(plan registration.Plan, observed []registration.Configuration) error {
	if len(plan.Groups) == 0 {
		return nil
	}
	for _, have := range observed {
		if _, ok := registration.GroupOf(have); !ok {
			continue
		}
		if err := registration.CheckEpoch(plan.Groups[0].Configuration, have); err != nil {
			return err
		}
	}
	return nil
}
