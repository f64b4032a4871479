// Package queue limits the number of concurrent evaluations. Further requests wait for
// a slot. A request that cannot get one in time is rejected at once, before it costs
// anything.
package queue

import (
	"context"
	"sync/atomic"
	"time"
)

// Reason is the reason for a rejection, and the value of a metric's label.
type Reason string

// Reasons for a rejection.
const (
	// Full means that the limit of requests is reached.
	Full Reason = "requests"
	// Deadline means that no slot is, or will be, free in time.
	Deadline Reason = "wait"
)

// Reasons returns all reasons.
func Reasons() []Reason { return []Reason{Full, Deadline} }

// BusyError is the error for a request that gets no slot.
type BusyError struct{ Reason Reason }

// Error implements error.
func (e *BusyError) Error() string {
	if e.Reason == Full {
		return "too many requests"
	}
	return "too many requests to answer this one in time"
}

// Limiter gives slots to requests, first come, first served. It takes no lock while
// slots are free: a slot is an element in the buffer of a channel, and the runtime wakes
// the sender that has waited longest.
type Limiter struct {
	slots           chan struct{}
	limit           int64
	accepted        atomic.Int64
	waiting         atomic.Int64
	averageDuration atomic.Int64 // recent average time in a slot, in nanoseconds
}

// New returns a Limiter with a number of slots and a limit of requests: those in a slot,
// those that wait for one, and those in Yield.
func New(slots, limit int) *Limiter {
	return &Limiter{slots: make(chan struct{}, slots), limit: int64(limit)}
}

// Waiting returns the number of requests that wait for a slot.
func (l *Limiter) Waiting() int { return int(l.waiting.Load()) }

// InUse returns the number of slots in use.
func (l *Limiter) InUse() int { return len(l.slots) }

// Acquire waits for a slot, for at most maxWait or until ctx ends. The error is a
// *BusyError or that of ctx. The caller must call Release.
func (l *Limiter) Acquire(ctx context.Context, maxWait time.Duration) (*Slot, error) {
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
	if err := l.wait(ctx, maxWait); err != nil {
		l.accepted.Add(-1)
		return nil, err
	}
	t.start()
	return t, nil
}

func (l *Limiter) wait(ctx context.Context, maxWait time.Duration) error {
	ahead := l.waiting.Add(1)
	defer l.waiting.Add(-1)
	if l.expected(ahead) > maxWait {
		return &BusyError{Deadline}
	}
	timer := time.NewTimer(maxWait)
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

// expected returns how long the last of the waiting requests will wait if evaluations
// continue to take the recent average time.
func (l *Limiter) expected(waiting int64) time.Duration {
	return time.Duration(waiting * l.averageDuration.Load() / int64(cap(l.slots)))
}

// Slot permits an evaluation. Only one goroutine may use it at a time.
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

// Release frees the slot.
func (t *Slot) Release() {
	if t.held {
		t.stop()
	}
	const weight = 8
	average := t.limiter.averageDuration.Load()
	t.limiter.averageDuration.Store(average + (int64(t.spent)-average)/weight) // a lost concurrent update does no harm
	t.limiter.accepted.Add(-1)
}

type slotKey struct{}

// Context returns ctx with the slot, for Yield.
func (t *Slot) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, t)
}

// Yield runs f, which waits for I/O, without the slot in ctx, so that another request
// can use it. Afterwards it waits for a slot again. If ctx ends first, it returns
// without one: the caller can only return an error then.
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
