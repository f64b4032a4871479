package pki

import (
	"errors"
	"fmt"
	"time"
)

// ServingState is what one replica has in memory: what it presents, and what it would
// tell API servers to trust. The zero Held is nothing.
//
// The pair of a new CA is on trial at first: should an API server refuse it,
// the replica falls back to the pair before. Only when the trial is over does
// it say that it has given that up, so nobody ends the trust in a CA that a
// replica could still go back to.
type ServingState struct {
	// Serving is the newest that was accepted.
	Serving Serving
	// previous is the pair that may be presented again, and its epoch.
	previous      Pair
	previousEpoch int64
	fellBack      bool
	// since is when the trial or the fall-back began.
	since time.Time
}

// Periods says how long a replica goes on in a state that shall pass.
type Periods struct {
	// Trial is how long a pair of a new CA is on trial.
	Trial time.Duration
	// Fallback is how long the pair before is used again when it has failed.
	Fallback time.Duration
}

// Presented is the pair for new connections.
func (h ServingState) Presented() Pair {
	if h.fellBack {
		return h.previous
	}
	return h.Serving.Pair
}

// PresentedEpoch is the epoch of that pair.
func (h ServingState) PresentedEpoch() int64 {
	if h.fellBack {
		return h.previousEpoch
	}
	return h.Serving.Epoch
}

// Committed is the lowest epoch that the replica may still present; 0 while it
// has nothing.
func (h ServingState) Committed() int64 {
	switch {
	case !h.previous.IsZero():
		return h.previousEpoch
	case h.Serving.Pair.IsZero():
		return 0
	}
	return h.Serving.Epoch
}

// OnTrial reports whether the pair before may still be presented.
func (h ServingState) OnTrial() bool { return !h.previous.IsZero() }

// FallenBack reports whether the pair before is in use again.
func (h ServingState) FallenBack() bool { return h.fellBack }

// Accept takes over what is stored, as far as it is fit to be used; the error
// says what is not. Live are the bundles that API servers have been told to
// trust: what verifies under one of them now must go on doing so.
//
// The time of a trial is now, which may be of a clock that does not jump.
func (h ServingState) Accept(stored Serving, live []Bundle, names Names, clocks Clocks, now time.Time) (ServingState, error) {
	err := h.check(stored, live, names, clocks)
	next := h
	if err == nil {
		next = h.serve(stored, clocks, now)
	}
	publish := next.mayPublish(stored, clocks)
	if len(stored.Paths) > 0 && (publish || err == nil && stored.TrustEpoch >= h.Serving.TrustEpoch) {
		next.Serving.Paths = stored.Paths
	}
	if publish {
		next.Serving.Bundle, next.Serving.TrustEpoch = stored.Bundle, stored.TrustEpoch
	}
	return next, err
}

func (h ServingState) check(stored Serving, live []Bundle, names Names, clocks Clocks) error {
	if err := stored.Pair.checkAt(clocks, stored.Bundle, names); err != nil {
		return err
	}
	own := h.Presented()
	good := func(pair Pair, bundle Bundle) bool { return pair.checkAt(clocks, bundle, names) == nil }
	if !good(own, h.Serving.Bundle) {
		return nil // anything is better
	}
	// A later bundle without the own root means that the CA was replaced and this leaf was not known to the leader: no copy
	// that is restored has a later bundle.
	replaced := stored.TrustEpoch > h.Serving.TrustEpoch && !good(own, stored.Bundle)
	if stored.Epoch < h.Serving.Epoch && !replaced {
		return reject(ReasonEpoch, fmt.Errorf("the certificate is of epoch %d, which is older than %d: it was restored from a copy", stored.Epoch, h.Serving.Epoch))
	}
	for _, bundle := range live {
		if good(own, bundle) && !good(stored.Pair, bundle) {
			return reject(ReasonChain, errors.New("API servers do not trust its CA yet"))
		}
	}
	return nil
}

func (h ServingState) serve(stored Serving, clocks Clocks, now time.Time) ServingState {
	next := h
	next.Serving.Pair, next.Serving.Epoch = stored.Pair, stored.Epoch
	good := h.Presented().checkAt(clocks, stored.Bundle, Names{}) == nil &&
		!sameCertificate(h.Presented().Certificate(), stored.Pair.Certificate())
	if good && stored.Epoch > h.Serving.Epoch && h.previous.IsZero() {
		next.previous, next.previousEpoch, next.since = h.Serving.Pair, h.Serving.Epoch, now
	}
	return next
}

// mayPublish reports whether the stored bundle may go to API servers: it is no
// older than the present one, and what is presented verifies under it.
func (h ServingState) mayPublish(stored Serving, clocks Clocks) bool {
	if len(stored.Bundle.roots) == 0 || stored.TrustEpoch < h.Serving.TrustEpoch {
		return false
	}
	return h.Presented().IsZero() || h.Presented().checkAt(clocks, stored.Bundle, Names{}) == nil
}

// FallBack is told that somebody refused what is presented.
func (h ServingState) FallBack(now time.Time) ServingState {
	if !h.previous.IsZero() && !h.fellBack {
		h.fellBack, h.since = true, now
	}
	return h
}

// Tick ends what has lasted long enough: a trial, or a fall-back. After that
// the newest pair is used for good.
func (h ServingState) Tick(now time.Time, p Periods) ServingState {
	lasted := now.Sub(h.since)
	if !h.previous.IsZero() && (h.fellBack && lasted >= p.Fallback || !h.fellBack && lasted >= p.Trial) {
		h.previous, h.previousEpoch, h.fellBack = Pair{}, 0, false
	}
	return h
}

// Check reports why API servers would not be served well: nothing is
// presented, it does not verify under what they have been told to trust, or it
// is about to expire. Live bundles that nothing at hand verifies under are
// somebody else's mistake, as long as there is one that it does.
func (h ServingState) Check(live []Bundle, names Names, c Config, clocks Clocks) error {
	pair := h.Presented()
	if err := pair.checkAt(clocks, h.Serving.Bundle, names); err != nil {
		return err
	}
	var untrusted error
	for _, bundle := range live {
		if untrusted = pair.checkAt(clocks, bundle, names); untrusted == nil {
			break
		}
	}
	if untrusted != nil {
		return fmt.Errorf("the registered configurations do not trust it: %w", untrusted)
	}
	leaf := pair.Certificate()
	least := c.MinimumLeft(leaf)
	if c.External {
		least = 0 // all replicas have it, and to stop calling them would be worse
	}
	return clocks.passesByEither(func(now time.Time) error {
		if left := leaf.NotAfter.Sub(now); left < least {
			return fmt.Errorf("it expires in %s, less than %s: it should have been renewed long ago", left.Round(time.Second), least)
		}
		return nil
	})
}
