package configurations

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/ostiary/ostiary/internal/registration"
)

// API servers keep the compiled form of a configuration, by its name, until the
// next event that changes or deletes it. An API server that receives such an event
// while it compiles the previous version may store the older result last
// (configurationsCache in k8s.io/apiserver/pkg/admission/configuration). It then uses
// the stale result until it resyncs after ten minutes: it calls webhooks for the wrong
// requests, or with an outdated CA bundle. It compiles all changed configurations
// together, so the previous event may be that of another configuration. The creation
// of a configuration discards nothing, so that the stale result of a deleted one with
// the same name remains. Therefore Ostiary writes each configuration that changes the
// calls a second time.

// debounce is the time without writes before a changed configuration is touched. It
// is longer than a compilation on a busy machine. During a conflict each write is an
// event of its own, and no touch follows.
const debounce = 2 * time.Second

// touchDue returns the time of the touch that a write needs; zero if it needs none. A
// new configuration is touched at once, unless one with its name was just deleted.
func (t *term) touchDue(had, want registration.Configuration) time.Time {
	now := t.Clock.Now()
	switch {
	case t.isRepair(want), registration.NeedsTouch(had, want):
		return now.Add(debounce)
	case had != nil:
		return time.Time{}
	case t.wasDeletedSince(registration.KeyOf(want), now.Add(-debounce)):
		return now.Add(debounce)
	default:
		return now
	}
}

// wasDeletedSince reports whether a configuration was deleted at a time or later, as
// far as is known: nothing is known of the time before this term of leadership.
func (t *term) wasDeletedSince(k registration.Key, since time.Time) bool {
	return !t.start.Before(since) || !t.deleted[k].Before(since)
}

// recordDeletions records the configurations that are gone since the last pass.
func (t *term) recordDeletions(existing map[registration.Key]bool) {
	now := t.Clock.Now()
	for k := range t.existing {
		if !existing[k] {
			t.deleted[k] = now
		}
	}
	for k, at := range t.deleted {
		if now.Sub(at) > debounce {
			delete(t.deleted, k)
		}
	}
	t.existing = existing
}

// touch writes configurations that API servers may have compiled from an older
// version again, with a new annotation that API servers ignore. It is limited per
// reconcile, so that repairs are not delayed.
func (t *term) touch(ctx context.Context, p *pass) error {
	due := t.dueTouches(p)
	got, errs := make([]registration.Configuration, len(due)), make([]error, len(due))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(due), func(i int) {
		got[i], errs[i] = t.sendTouch(ctx, due[i])
	})
	now := t.Clock.Now()
	for i, c := range due {
		if errs[i] != nil {
			continue
		}
		k := registration.KeyOf(c)
		delete(t.touchAt, k)
		if got[i] != nil {
			t.written[k] = got[i]
		}
		if u, ok := t.propagating[k]; ok {
			u.since = now
			t.propagating[k] = u
		}
	}
	return errors.Join(errs...)
}

// dueTouches returns the configurations to touch in this pass.
func (t *term) dueTouches(p *pass) []registration.Configuration {
	var due []registration.Configuration
	now := t.Clock.Now()
	for k, at := range t.touchAt {
		if wait := at.Sub(now); wait > 0 {
			p.requeueWithin(wait)
			continue
		}
		have, want := p.observed[k], t.applied[k]
		if have == nil {
			have = t.written[k] // created in this pass
		}
		switch {
		case have == nil || want == nil || !registration.Matches(have, want):
			delete(t.touchAt, k) // the repair records it again
		case len(due) == writers:
			p.requeueWithin(time.Millisecond)
		default:
			due = append(due, registration.Touched(want, have.GetResourceVersion()))
		}
	}
	return due
}

// sendTouch writes a configuration, and returns the result. It returns nil if another
// write has come first, which has the same effect.
func (t *term) sendTouch(ctx context.Context, touched registration.Configuration) (registration.Configuration, error) {
	u, err := t.send(ctx, touched)
	if apierrors.IsConflict(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	logr.FromContextOrDiscard(ctx).Info("touched configuration", "configuration", touched.GetName())
	return toTyped(u, registration.PhaseOf(touched))
}

// propagation is a written configuration that API servers may not use yet.
type propagation struct {
	members []string
	since   time.Time // last write
}

// startPropagation records configurations that are about to be written and change
// the calls of API servers. A new member that leaves the webhooks as they are does not.
func (t *term) startPropagation(p *pass, wants []registration.Configuration) {
	for _, want := range wants {
		k := registration.KeyOf(want)
		had := p.observed[k]
		if had == nil || t.isRepair(want) || registration.NeedsTouch(had, want) {
			t.propagating[k] = propagation{members: registration.Members(want), since: t.Clock.Now()}
		}
	}
	t.publishPropagating()
}

// finishPropagation removes configurations that API servers have had time to compile.
func (t *term) finishPropagation(p *pass) {
	now := t.Clock.Now()
	for k, u := range t.propagating {
		if _, due := t.touchAt[k]; due {
			continue // the touch follows
		}
		if wait := u.since.Add(debounce).Sub(now); wait > 0 {
			p.requeueWithin(wait)
			continue
		}
		delete(t.propagating, k)
	}
	t.publishPropagating()
}

func (t *term) publishPropagating() {
	policies := map[string]bool{}
	for _, u := range t.propagating {
		for _, name := range u.members {
			policies[name] = true
		}
	}
	t.Gate.setPropagating(policies)
}
