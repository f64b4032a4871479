package configurations

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ostiary/ostiary/internal/registration"
)

// API servers keep what they have compiled of a configuration until its next
// event. One that compiles a version while it hears of the next stores what it
// made of the first after it has forgotten it for the second (configurationsCache
// in k8s.io/apiserver/pkg/admission/configuration), and calls webhooks by it until
// it resynchronises, for ten minutes: whom policies no longer concern, or with a
// bundle that was put right long ago. It compiles all that have changed in one go,
// so it need not be the same configuration that has changed a moment before.
// Whatever calls otherwise than what it follows is therefore announced once more,
// when nobody has written it for a while.

// calm is how long nobody has written a configuration that is announced: longer
// than compiling takes where processors are busy. In a fight about a configuration
// each write is an event, and none is repeated.
const calm = 2 * time.Second

// announce writes once more what may have been overtaken, as it is: no API server
// looks at the annotation that tells the two apart. A pass announces few, for the
// next one repairs before it goes on.
func (r *Reconciler) announce(ctx context.Context, p *pass) error {
	now, left := r.Clock.Now(), writers
	for k, since := range r.overtaken {
		if wait := since.Add(calm).Sub(now); wait > 0 {
			p.later(wait)
			continue
		}
		have, want := p.observed[k], r.applied[k]
		if have == nil || want == nil || !registration.Carries(have, want) {
			delete(r.overtaken, k) // whoever puts it right notes it anew
			continue
		}
		if left == 0 {
			p.later(time.Millisecond)
			return nil
		}
		left--
		if err := r.sendAgain(ctx, k, registration.Announced(want, have.GetResourceVersion())); err != nil {
			return err
		}
		delete(r.overtaken, k)
		if u, ok := r.settling[k]; ok {
			u.since = now
			r.settling[k] = u
		}
	}
	return nil
}

// sendAgain writes a configuration if nobody has written it since, which would be
// an event, too.
func (r *Reconciler) sendAgain(ctx context.Context, k key, announced registration.Configuration) error {
	u, err := r.send(ctx, announced)
	if err != nil {
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	got, err := typed(u, k.phase)
	if err != nil {
		return err
	}
	r.written[k] = got
	logr.FromContextOrDiscard(ctx).Info("announced configuration once more", "configuration", k.name)
	return nil
}

// unsettled is a configuration that API servers may not call by yet.
type unsettled struct {
	members []string
	since   time.Time // the last event that they have to hear of
}

// unsettle notes what is about to be written and changes who is called or how. A
// policy that joins a configuration and leaves its webhooks as they are waits for nothing.
func (r *Reconciler) unsettle(p *pass, wants []registration.Configuration) {
	for _, want := range wants {
		k := keyOf(want)
		had := p.observed[k]
		if had == nil || r.again(want) || registration.Misleads(had, want) {
			r.settling[k] = unsettled{members: registration.Members(want), since: r.Clock.Now()}
		}
	}
	r.tellSettling()
}

// settled drops what API servers have had time to take up since the last event.
func (r *Reconciler) settled(p *pass) {
	now := r.Clock.Now()
	for k, u := range r.settling {
		if _, due := r.overtaken[k]; due {
			continue // its announcement is the last event
		}
		if wait := u.since.Add(calm).Sub(now); wait > 0 {
			p.later(wait)
			continue
		}
		delete(r.settling, k)
	}
	r.tellSettling()
}

func (r *Reconciler) tellSettling() {
	policies := map[string]bool{}
	for _, u := range r.settling {
		for _, name := range u.members {
			policies[name] = true
		}
	}
	r.Gate.settle(policies)
}
