package configurations

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ostiary/ostiary/internal/registration"
)

// API servers keep the compiled form of a configuration until its next event. An
// API server that receives an event while it compiles the previous version may
// store the older result last (configurationsCache in
// k8s.io/apiserver/pkg/admission/configuration). It then uses the stale result
// until it resyncs after ten minutes: it calls webhooks for the wrong requests, or
// with an outdated CA bundle. It compiles all changed configurations together, so
// the previous event may be that of another configuration. Therefore Ostiary
// writes each configuration that changes the calls a second time, when no client
// has written it for a while.

// debounce is the time without writes before a configuration is touched. It is
// longer than a compilation on a busy machine. During a conflict each write is an
// event of its own, and no touch follows.
const debounce = 2 * time.Second

// touch writes configurations that API servers may have compiled from an older
// version again, with a new annotation that API servers ignore. It is limited per
// reconcile, so that repairs are not delayed.
func (r *Reconciler) touch(ctx context.Context, p *pass) error {
	now, left := r.Clock.Now(), writers
	for k, since := range r.staleCompiled {
		if wait := since.Add(debounce).Sub(now); wait > 0 {
			p.requeueWithin(wait)
			continue
		}
		have, want := p.observed[k], r.applied[k]
		if have == nil || want == nil || !registration.Matches(have, want) {
			delete(r.staleCompiled, k) // the repair records it again
			continue
		}
		if left == 0 {
			p.requeueWithin(time.Millisecond)
			return nil
		}
		left--
		if err := r.sendTouch(ctx, k, registration.Touched(want, have.GetResourceVersion())); err != nil {
			return err
		}
		delete(r.staleCompiled, k)
		if u, ok := r.propagating[k]; ok {
			u.since = now
			r.propagating[k] = u
		}
	}
	return nil
}

// sendTouch writes a configuration, unless another write has come first, which
// has the same effect.
func (r *Reconciler) sendTouch(ctx context.Context, k registration.Key, announced registration.Configuration) error {
	u, err := r.send(ctx, announced)
	if err != nil {
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	got, err := toTyped(u, k.Phase)
	if err != nil {
		return err
	}
	r.written[k] = got
	logr.FromContextOrDiscard(ctx).Info("touched configuration", "configuration", k.Name)
	return nil
}

// propagation is a written configuration that API servers may not use yet.
type propagation struct {
	members []string
	since   time.Time // last write
}

// startPropagation records configurations that are about to be written and change
// the calls of API servers. A new member that leaves the webhooks as they are does not.
func (r *Reconciler) startPropagation(p *pass, wants []registration.Configuration) {
	for _, want := range wants {
		k := registration.KeyOf(want)
		had := p.observed[k]
		if had == nil || r.isRepair(want) || registration.NeedsTouch(had, want) {
			r.propagating[k] = propagation{members: registration.Members(want), since: r.Clock.Now()}
		}
	}
	r.publishPropagating()
}

// finishPropagation removes configurations that API servers have had time to compile.
func (r *Reconciler) finishPropagation(p *pass) {
	now := r.Clock.Now()
	for k, u := range r.propagating {
		if _, due := r.staleCompiled[k]; due {
			continue // the touch follows
		}
		if wait := u.since.Add(debounce).Sub(now); wait > 0 {
			p.requeueWithin(wait)
			continue
		}
		delete(r.propagating, k)
	}
	r.publishPropagating()
}

func (r *Reconciler) publishPropagating() {
	policies := map[string]bool{}
	for _, u := range r.propagating {
		for _, name := range u.members {
			policies[name] = true
		}
	}
	r.Gate.setPropagating(policies)
}
