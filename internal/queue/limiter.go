// Package queue limits the number of concurrent evaluations. Further requests wait for a
// slot, which flows share fairly: see Limiter. A request that cannot get one in time is
// rejected at once, before it is evaluated.
package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Reason is the reason for a rejection, and the value of a metric's label.
type Reason string

// Reasons for a rejection.
const (
	// Full means that the limit of requests is reached, or the share of the flow in it.
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

const (
	// quantum is the time in a slot after which Pause gives it to a flow that has used less. A pause costs microseconds.
	quantum = 5 * time.Millisecond
	// share bounds what one flow holds: at most this many times what is free (the dynamic threshold of Choudhury and Hahne,
	// 1998). One flow can then hold two thirds of the slots, two flows four fifths, and so on, so that another flow finds a
	// free slot unless many hold several. A slot in use cannot be taken away, and one expression can take a second.
	share = 2
	// leastUse is charged for a slot in advance, so that flows with the same virtual time alternate.
	leastUse = time.Microsecond
)

// Flow identifies the requests among which slots are shared fairly. Requests of one flow are first come, first served.
type Flow struct {
	Namespace string // of the request
	User      string // of a request without a namespace
}

// Limiter gives slots to requests. It takes no lock while no request waits.
//
// The next slot goes to the flow with the least virtual time: its time in slots, in nanoseconds. This is start-time fair
// queueing (Goyal, Vin, Cheng 1996) with several servers. The virtual time of the Limiter is that of the flow that got a
// slot last. A flow that comes or returns begins with it, so it neither saves up unused time nor pays for time that no
// other flow wanted.
type Limiter struct {
	slots, limit int64
	usage        *usage
	inUse        atomic.Int64 // slots
	accepted     atomic.Int64 // requests
	waiting      atomic.Int64 // requests
	virtual      atomic.Int64

	mu    sync.Mutex // guards flows
	flows waitingFlows
}

// New returns a Limiter with a number of slots and a limit of requests: those in a slot,
// those that wait for one, and those in Yield. One flow can hold two thirds of each, and at least one.
func New(slots, limit int) *Limiter {
	return &Limiter{slots: int64(slots), limit: int64(limit), usage: newUsage()}
}

// Waiting returns the number of requests that wait for a slot.
func (l *Limiter) Waiting() int { return int(l.waiting.Load()) }

// InUse returns the number of slots in use.
func (l *Limiter) InUse() int { return int(l.inUse.Load()) }

// Acquire waits for a slot, for at most maxWait or until ctx ends. The error is a
// *BusyError or that of ctx. The caller must call Release.
func (l *Limiter) Acquire(ctx context.Context, f Flow, maxWait time.Duration) (*Slot, error) {
	t := &Slot{limiter: l, flow: f, cells: l.usage.of(f)}
	if !l.accept(&t.cells) {
		return nil, &BusyError{Full}
	}
	if l.waiting.Load() > 0 || !l.take(&t.cells) {
		if err := l.wait(ctx, t, maxWait); err != nil {
			l.dismiss(&t.cells)
			return nil, err
		}
	}
	t.start()
	return t, nil
}

// accept counts a request, unless the limit or the flow's share of it is reached.
func (l *Limiter) accept(c *cells) bool {
	free := l.limit - l.accepted.Add(1) + 1
	own := c.least(acceptedOf)
	c.add(acceptedOf, 1)
	if own < share*free {
		return true
	}
	l.dismiss(c)
	return false
}

func (l *Limiter) dismiss(c *cells) {
	c.add(acceptedOf, -1)
	l.accepted.Add(-1)
}

// take takes a slot, unless none is free or the flow has its share. Concurrent calls for one flow can exceed the share.
func (l *Limiter) take(c *cells) bool {
	for {
		used := l.inUse.Load()
		if c.least(slotsOf) >= share*(l.slots-used) {
			return false
		}
		if l.inUse.CompareAndSwap(used, used+1) {
			break
		}
	}
	c.add(slotsOf, 1)
	l.advance(c.least(virtualOf))
	return true
}

// advance sets the virtual time, which never decreases.
func (l *Limiter) advance(to int64) {
	for before := l.virtual.Load(); before < to; before = l.virtual.Load() {
		if l.virtual.CompareAndSwap(before, to) {
			return
		}
	}
}

func (l *Limiter) wait(ctx context.Context, t *Slot, maxWait time.Duration) error {
	w := &waiter{slot: t, ready: make(chan struct{})}
	if !l.enqueue(w, maxWait) {
		return &BusyError{Deadline}
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		err = &BusyError{Deadline}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !l.leave(w) { // it got a slot meanwhile
		return nil
	}
	return err
}

// enqueue adds a request that had no slot yet. It returns false if the request would wait longer than maxWait.
func (l *Limiter) enqueue(w *waiter, maxWait time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(w, false)
	l.dispatch()
	if w.flow != nil && l.expected(w.flow) > maxWait {
		l.remove(w)
		return false
	}
	return true
}

// add makes a request wait. The caller dispatches: the number of waiting requests is raised before dispatch reads the
// slots in use, and stop lowers these before it reads the former, so no free slot is overlooked.
func (l *Limiter) add(w *waiter, first bool) {
	l.flows.add(w, first)
	l.waiting.Add(1)
}

func (l *Limiter) remove(w *waiter) {
	l.flows.remove(w)
	l.waiting.Add(-1)
}

// leave ends the wait of a request. It returns false if the request has a slot.
func (l *Limiter) leave(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.flow == nil {
		return false
	}
	l.remove(w)
	return true
}

// dispatch gives free slots to waiting requests.
func (l *Limiter) dispatch() {
	for l.inUse.Load() < l.slots {
		w := l.flows.next(l.virtual.Load(), l.take)
		if w == nil {
			return
		}
		l.waiting.Add(-1)
		w.slot.cells.charge(l.virtual.Load(), leastUse)
		close(w.ready)
	}
}

// expected returns how long the last request of a flow will wait if evaluations continue to take the recent average
// time of their flows.
func (l *Limiter) expected(own *flow) time.Duration {
	usable := shareOf(l.slots, int64(len(l.flows.byName)))
	return l.flows.work(own) / time.Duration(usable)
}

// shareOf returns how much of a number can be in use by a number of flows: see share.
func shareOf(total, flows int64) int64 {
	used, all := share*flows, share*flows+1
	return (total*used + all - 1) / all
}

// Slot permits an evaluation. Only one goroutine may use it at a time.
type Slot struct {
	limiter *Limiter
	flow    Flow
	cells   cells
	held    bool
	began   time.Time
	spent   time.Duration
}

func (t *Slot) start() { t.held, t.began = true, time.Now() }

// stop frees the slot. The caller dispatches if requests wait.
func (t *Slot) stop() {
	used := time.Since(t.began)
	t.held = false
	t.spent += used
	l := t.limiter
	t.cells.charge(l.virtual.Load(), used)
	if waiting := l.waiting.Load(); waiting > 0 {
		// So that a flow gets its turn although new flows keep coming, which begin with the virtual time of the limiter.
		l.virtual.Add(int64(used) / (waiting + 1))
	}
	t.cells.add(slotsOf, -1)
	l.inUse.Add(-1)
}

func (t *Slot) stopAndDispatch() {
	t.stop()
	l := t.limiter
	if l.waiting.Load() > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dispatch()
	}
}

// Release frees the slot.
func (t *Slot) Release() {
	if t.held {
		t.stopAndDispatch()
	}
	t.cells.observe(t.spent)
	t.limiter.dismiss(&t.cells)
}

type slotKey struct{}

// Context returns ctx with the slot, for Yield and Pause.
func (t *Slot) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, t)
}

// slotOf returns the slot in ctx, or nil if ctx has none or the slot is not in use.
func slotOf(ctx context.Context) *Slot {
	if t, _ := ctx.Value(slotKey{}).(*Slot); t != nil && t.held {
		return t
	}
	return nil
}

// Yield runs f, which waits for I/O, without the slot in ctx, so that another request
// can use it. Afterwards it waits for a slot again. If ctx ends first, it returns
// without one: the caller can only return an error then.
func Yield(ctx context.Context, f func()) {
	t := slotOf(ctx)
	if t == nil {
		f()
		return
	}
	t.stopAndDispatch()
	defer t.reacquire(ctx)
	f()
}

// Pause is called between the steps of an evaluation. If the slot in ctx has been used for some milliseconds and a flow
// waits that has used less, that flow gets the slot, and Pause waits for another one, as Yield does. If no request waits,
// it only reads a counter.
func Pause(ctx context.Context) {
	t := slotOf(ctx)
	if t == nil || t.limiter.waiting.Load() == 0 || time.Since(t.began) < quantum {
		return
	}
	w := &waiter{slot: t, ready: make(chan struct{})}
	l := t.limiter
	l.mu.Lock()
	t.stop()
	l.add(w, true)
	l.dispatch()
	l.mu.Unlock()
	t.await(ctx, w)
}

func (t *Slot) reacquire(ctx context.Context) {
	l := t.limiter
	if l.waiting.Load() == 0 && l.take(&t.cells) {
		t.start()
		return
	}
	w := &waiter{slot: t, ready: make(chan struct{})}
	l.mu.Lock()
	l.add(w, true)
	l.dispatch()
	l.mu.Unlock()
	t.await(ctx, w)
}

// await waits until a request has a slot again, or until ctx ends.
func (t *Slot) await(ctx context.Context, w *waiter) {
	select {
	case <-w.ready:
	case <-ctx.Done():
		if t.limiter.leave(w) {
			return
		}
	}
	t.start()
}
