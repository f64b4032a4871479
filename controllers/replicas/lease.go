package replicas

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// timing configures the renewal of a Lease. A replica becomes unready before its Lease
// expires: readiness probes and the updates of endpoints may take duration-unready.
type timing struct {
	duration, unready, renew time.Duration
	// expired is the age at which the replica itself considers its Lease expired. It is
	// less than duration, because the clock rates of two machines differ and a response
	// takes time to arrive.
	expired time.Duration
	// gap is the shortest time between two renewals because of a changed report.
	gap time.Duration
	// attempt is the timeout of a request, and retry the pause after a failed one.
	attempt, retry time.Duration
}

func defaultTiming() timing {
	// API servers under attack wrote nothing for up to 35 seconds, and for 16 at the same
	// time. Replicas that become unready then are unready all at once.
	return timing{
		duration: 45 * time.Second, expired: 44 * time.Second, unready: 30 * time.Second, renew: 4 * time.Second,
		gap: 200 * time.Millisecond, attempt: 8 * time.Second, retry: time.Second,
	}
}

// Lease is the state of the Lease of this replica. The Reporter renews it. It is
// safe for concurrent use.
type Lease struct {
	timing timing
	now    func() time.Duration
	// renewed is the time, from now, at which the last successful write started; nil
	// before the first one. From this write on, other replicas wait for this one.
	renewed atomic.Pointer[time.Duration]
}

// NewLease returns a Lease that has not been written.
func NewLease() *Lease { return &Lease{timing: defaultTiming(), now: newClock()} }

func newMonotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Expired reports whether the leader may report a policy as Ready without waiting for
// this replica, which may then have outdated policies. It is true before the first
// renewal. It takes no lock and may be called for every request.
func (l *Lease) Expired() bool {
	renewed := l.renewed.Load()
	return renewed == nil || l.now()-*renewed >= l.timing.expired
}

// Ready returns an error if the Lease may expire soon. API servers must not call a
// replica with an expired Lease.
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
