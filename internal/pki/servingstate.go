package pki

import (
	"errors"
	"fmt"
	"time"
)

// ServingState is one replica's state in memory: the certificate that it presents
// and the bundle that it publishes. The zero ServingState is empty.
//
// The pair of a new CA is on trial at first. If an API server rejects it, the
// replica falls back to the previous pair. A replica reports the new epoch only
// after the trial, so the leader never ends trust in a CA that a replica could
// fall back to.
type ServingState struct {
	// Serving is the newest accepted content of the Secret.
	Serving Serving
	// previous is the pair for a fall-back.
	previous      Pair
	previousEpoch int64
	fellBack      bool
	// since is when the trial or the fall-back began.
	since time.Time
}

// Periods bounds the temporary states of a replica.
type Periods struct {
	// Trial is how long the replica may fall back from the pair of a new CA.
	Trial time.Duration
	// Fallback is how long the replica presents the previous pair after a rejection.
	Fallback time.Duration
}

// Presented returns the pair for new connections.
func (h ServingState) Presented() Pair {
	if h.fellBack {
		return h.previous
	}
	return h.Serving.Pair
}

// PresentedEpoch returns the epoch of that pair.
func (h ServingState) PresentedEpoch() int64 {
	if h.fellBack {
		return h.previousEpoch
	}
	return h.Serving.Epoch
}

// Committed returns the lowest epoch that the replica may still present; 0 without
// a certificate.
func (h ServingState) Committed() int64 {
	switch {
	case !h.previous.IsZero():
		return h.previousEpoch
	case h.Serving.Pair.IsZero():
		return 0
	}
	return h.Serving.Epoch
}

// OnTrial reports whether the replica may still present the previous pair.
func (h ServingState) OnTrial() bool { return !h.previous.IsZero() }

// FallenBack reports whether the replica presents the previous pair again.
func (h ServingState) FallenBack() bool { return h.fellBack }

// Accept takes over the usable parts of what is stored; the error says which part
// is rejected. Live are the published bundles: a pair that verifies under one of
// them is not replaced by one that does not.
//
// Trials are timed by now, which may be monotonic.
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
		return nil // the presented pair is unusable
	}
	// A later bundle without the own root means that the CA was replaced and the leader did not know this leaf: a restored
	// copy has no later bundle.
	replaced := stored.TrustEpoch > h.Serving.TrustEpoch && !good(own, stored.Bundle)
	if stored.Epoch < h.Serving.Epoch && !replaced {
		return reject(ReasonEpoch, fmt.Errorf("the certificate has epoch %d, older than %d: it was restored from a backup", stored.Epoch, h.Serving.Epoch))
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

// mayPublish reports whether the stored bundle may be published: it is not older
// than the present one, and verifies the presented pair.
func (h ServingState) mayPublish(stored Serving, clocks Clocks) bool {
	if len(stored.Bundle.roots) == 0 || stored.TrustEpoch < h.Serving.TrustEpoch {
		return false
	}
	return h.Presented().IsZero() || h.Presented().checkAt(clocks, stored.Bundle, Names{}) == nil
}

// FallBack presents the previous pair again, if the new one is on trial. Call it
// when a client rejects the presented certificate.
func (h ServingState) FallBack(now time.Time) ServingState {
	if !h.previous.IsZero() && !h.fellBack {
		h.fellBack, h.since = true, now
	}
	return h
}

// Tick ends a trial or a fall-back whose period has passed. From then on, the
// replica presents only the newest pair.
func (h ServingState) Tick(now time.Time, p Periods) ServingState {
	lasted := now.Sub(h.since)
	if !h.previous.IsZero() && (h.fellBack && lasted >= p.Fallback || !h.fellBack && lasted >= p.Trial) {
		h.previous, h.previousEpoch, h.fellBack = Pair{}, 0, false
	}
	return h
}

// Check returns an error if API servers would reject the presented certificate:
// there is none, no published bundle verifies it, or it is about to expire. One
// live bundle that verifies it is enough; the others may be invalid edits.
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
		return fmt.Errorf("the bundles in the webhook configurations do not verify it: %w", untrusted)
	}
	leaf := pair.Certificate()
	least := c.MinimumLeft(leaf)
	if c.External {
		least = 0 // all replicas serve it: unready ones would end service before it expires
	}
	return clocks.passesByEither(func(now time.Time) error {
		if left := leaf.NotAfter.Sub(now); left < least {
			return fmt.Errorf("it expires in %s, less than %s: its renewal is overdue", left.Round(time.Second), least)
		}
		return nil
	})
}
