package replicas

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// timing is when a Lease is renewed. Every replica that is counted as gone has
// been unready for a while before: duration-unready is what readiness probes
// and the endpoints that follow them may take.
type timing struct {
	duration, unready, renew time.Duration
	// expired is the age from which the replica itself takes its Lease for one that
	// others no longer wait for. It is less than duration, because the clocks of two
	// machines differ in speed and an answer takes time to arrive.
	expired time.Duration
	// gap is the least time between two renewals for the sake of a new report.
	gap time.Duration
	// attempt bounds one call, and retry is the pause after one that failed.
	attempt, retry time.Duration
}

func defaultTiming() timing {
	return timing{
		duration: 30 * time.Second, expired: 29 * time.Second, unready: 12 * time.Second, renew: 4 * time.Second,
		gap: 200 * time.Millisecond, attempt: 4 * time.Second, retry: time.Second,
	}
}

// Lease is the state of the Lease of this replica. The Reporter renews it. It is
// safe for concurrent use.
type Lease struct {
	timing timing
	now    func() time.Duration
	// renewed is the start of the write with which others last began to wait for this
	// replica, by now. It is nil before the first one.
	renewed atomic.Pointer[time.Duration]
}

// NewLease returns a Lease that has not been written.
func NewLease() *Lease { return &Lease{timing: defaultTiming(), now: newClock()} }

func newMonotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Expired reports whether other replicas may no longer wait for this one before
// they report a policy as Ready, so that it may answer from old policies. That is
// also so before the first renewal. It takes no lock and may be called for every request.
func (l *Lease) Expired() bool {
	renewed := l.renewed.Load()
	return renewed == nil || l.now()-*renewed >= l.timing.expired
}

// Ready is an error where the others may count this replica as gone soon: API
// servers must not call one that nobody waits for.
func (l *Lease) Ready() error {
	renewed := l.renewed.Load()
	switch {
	case renewed == nil:
		return errors.New("the replica's Lease has not been written yet")
	case l.now()-*renewed > l.timing.unready:
		return fmt.Errorf("the replica's Lease has not been renewed for more than %s", l.timing.unready)
	}
	return nil
}
