// Package queue bounds how many requests compute at a time. Those beyond wait in
// a line; who cannot have a turn in time is told so at once, before anything is
// spent on it.
package queue

import (
	"context"
	"sync/atomic"
	"time"
)

// Reason says why there is no turn. It is the value of a metric's label.
type Reason string

// The reasons for which there is no turn.
const (
	// Full is that too many wait already.
	Full Reason = "requests"
	// Deadline is that the turn would come, or has come, too late.
	Deadline Reason = "wait"
)

// Reasons are all reasons.
func Reasons() []Reason { return []Reason{Full, Deadline} }

// BusyError says that there is no turn.
type BusyError struct{ Reason Reason }

// Error implements error.
func (e *BusyError) Error() string {
	if e.Reason == Full {
		return "too many requests"
	}
	return "too many requests to answer this one in time"
}

// Limiter is who computes and who waits for it, first come, first served. It takes
// no lock while turns are free: a turn is a place in a channel's buffer, and the
// runtime hands those that become free to who has waited longest.
type Limiter struct {
	slots           chan struct{}
	limit           int64
	accepted        atomic.Int64
	waiting         atomic.Int64
	averageDuration atomic.Int64 // nanoseconds that a turn takes of late
}

// New makes a line in which so many compute at a time, and so many are in it
// altogether: those that compute, those that wait for a turn, and those that
// wait for somebody else.
func New(turns, limit int) *Limiter {
	return &Limiter{slots: make(chan struct{}, turns), limit: int64(limit)}
}

// Waiting is how many wait for a turn.
func (l *Limiter) Waiting() int { return int(l.waiting.Load()) }

// InUse is how many have a turn.
func (l *Limiter) InUse() int { return len(l.slots) }

// Acquire waits for a turn until ctx ends or patience is at its end. An error is a
// *BusyError or that of ctx. The turn has to be ended with Done.
func (l *Limiter) Acquire(ctx context.Context, patience time.Duration) (*Slot, error) {
	if l.accepted.Add(1) > l.limit {
		l.accepted.Add(-1)
		return nil, &BusyError{Full}
	}
	t := &Slot{limiter: l}
	select {
	case l.slots <- struct{}{}:
		t.start()
		return t, nil
	default:
	}
	if err := l.wait(ctx, patience); err != nil {
		l.accepted.Add(-1)
		return nil, err
	}
	t.start()
	return t, nil
}

func (l *Limiter) wait(ctx context.Context, patience time.Duration) error {
	ahead := l.waiting.Add(1)
	defer l.waiting.Add(-1)
	if l.expected(ahead) > patience {
		return &BusyError{Deadline}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return &BusyError{Deadline}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// expected is how long the last of so many will wait, if turns go on to take as
// long as they did of late.
func (l *Limiter) expected(waiting int64) time.Duration {
	return time.Duration(waiting * l.averageDuration.Load() / int64(cap(l.slots)))
}

// Slot is the right to compute. It is used by one goroutine at a time.
type Slot struct {
	limiter *Limiter
	held    bool
	began   time.Time
	spent   time.Duration
}

func (t *Slot) start() { t.held, t.began = true, time.Now() }

func (t *Slot) stop() {
	t.held = false
	t.spent += time.Since(t.began)
	<-t.limiter.slots
}

// Release ends the turn.
func (t *Slot) Release() {
	if t.held {
		t.stop()
	}
	// Of two that end at the same moment one may be forgotten, which is no loss.
	const weight = 8
	pace := t.limiter.averageDuration.Load()
	t.limiter.averageDuration.Store(pace + (int64(t.spent)-pace)/weight)
	t.limiter.accepted.Add(-1)
}

type slotKey struct{}

// Context is ctx with the turn, for Away.
func (t *Slot) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, t)
}

// Yield runs f, which waits for somebody else and hardly computes, without the
// turn that ctx has, if it has one: others compute in the meantime. Afterwards
// it waits for a turn again. When ctx ends first, it goes on without one, since
// all that is left to do is to give up.
func Yield(ctx context.Context, f func()) {
	t, _ := ctx.Value(slotKey{}).(*Slot)
	if t == nil || !t.held {
		f()
		return
	}
	t.stop()
	defer t.reacquire(ctx)
	f()
}

func (t *Slot) reacquire(ctx context.Context) {
	t.limiter.waiting.Add(1)
	defer t.limiter.waiting.Add(-1)
	select {
	case t.limiter.slots <- struct{}{}:
		t.start()
	case <-ctx.Done():
	}
}
