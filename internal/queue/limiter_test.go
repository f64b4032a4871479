package queue

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func reasonOf(err error) Reason {
	var busy *BusyError
	if errors.As(err, &busy) {
		return busy.Reason
	}
	return ""
}

// tenant returns the flow of a namespace.
func tenant(name string) Flow { return Flow{Namespace: name} }

func mustAcquire(t *testing.T, l *Limiter) *Slot {
	t.Helper()
	return mustAcquireFor(t, l, tenant("a"))
}

func mustAcquireFor(t *testing.T, l *Limiter, f Flow) *Slot {
	t.Helper()
	slot, err := l.Acquire(t.Context(), f, time.Minute)
	if err != nil {
		t.Fatalf("Acquire() = %v", err)
	}
	return slot
}

// wantIdle checks that every slot is free, and that nothing is left of the flows.
func wantIdle(t *testing.T, l *Limiter) {
	t.Helper()
	if n, m, cost := len(l.flows.byName), len(l.flows.order), l.flows.cost; n != 0 || m != 0 || cost != 0 {
		t.Errorf("%d flows wait, %d are in the heap, and cost %s; want none", n, m, cost)
	}
	for i := range l.usage.cells {
		for j := range l.usage.cells[i] {
			if c := &l.usage.cells[i][j]; c.slots.Load() != 0 || c.accepted.Load() != 0 {
				t.Fatalf("a flow has %d slots and %d requests, want none", c.slots.Load(), c.accepted.Load())
			}
		}
	}
	if c, w, a := l.InUse(), l.Waiting(), l.accepted.Load(); c != 0 || w != 0 || a != 0 {
		t.Errorf("%d in use, %d wait, %d accepted; want none", c, w, a)
	}
}

func TestRejections(t *testing.T) {
	tests := map[string]struct {
		slots, limit int
		average      time.Duration // of earlier requests
		maxWait      time.Duration
		cancel       time.Duration // after which the caller cancels
		wantReason   Reason
		wantErr      error
		wantAfter    time.Duration
	}{
		"too many":                      {slots: 1, limit: 1, maxWait: time.Hour, wantReason: Full},
		"maxWait is over":               {slots: 1, limit: 9, maxWait: time.Second, wantReason: Deadline, wantAfter: time.Second},
		"the expected wait is too long": {slots: 1, limit: 9, average: 4 * time.Second, maxWait: 3 * time.Second, wantReason: Deadline},
		"the expected wait is short": {
			slots:      1,
			limit:      9,
			average:    2 * time.Second,
			maxWait:    3 * time.Second,
			wantReason: Deadline,
			wantAfter:  3 * time.Second,
		},
		"more slots": {
			slots:      2,
			limit:      9,
			average:    4 * time.Second,
			maxWait:    3 * time.Second,
			wantReason: Deadline,
			wantAfter:  3 * time.Second,
		},
		"the caller cancels": {
			slots:     1,
			limit:     9,
			maxWait:   time.Hour,
			cancel:    time.Second,
			wantErr:   context.Canceled,
			wantAfter: time.Second,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(tc.slots, tc.limit)
				cells := l.usage.of(tenant("a"))
				cells.add(averageOf, int64(tc.average))
				var held []*Slot
				for range tc.slots {
					held = append(held, mustAcquire(t, l))
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				began := time.Now()
				_, err := l.Acquire(ctx, tenant("a"), tc.maxWait)
				if reasonOf(err) != tc.wantReason || tc.wantErr != nil && !errors.Is(err, tc.wantErr) {
					t.Errorf("Acquire() = %v, want reason %q, error %v", err, tc.wantReason, tc.wantErr)
				}
				if after := time.Since(began); after != tc.wantAfter {
					t.Errorf("answered after %s, want %s", after, tc.wantAfter)
				}
				for _, slot := range held {
					slot.Release()
				}
				wantIdle(t, l)
			})
		})
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 100)
		first := mustAcquire(t, l)
		var order []int
		for i := range 20 {
			go func() {
				slot := mustAcquire(t, l)
				order = append(order, i)
				slot.Release()
			}()
			synctest.Wait()
		}
		if got := l.Waiting(); got != 20 {
			t.Errorf("%d wait, want 20", got)
		}
		first.Release()
		synctest.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
		if len(order) != 20 {
			t.Errorf("%d were served, want 20", len(order))
		}
		wantIdle(t, l)
	})
}

func TestAverageExcludesYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 9)
		for range 50 {
			slot := mustAcquire(t, l)
			Yield(slot.Context(t.Context()), func() { time.Sleep(time.Hour) })
			time.Sleep(time.Second)
			slot.Release()
		}
		cells := l.usage.of(tenant("a"))
		if average := time.Duration(cells.least(averageOf)); average < 900*time.Millisecond || average > time.Second {
			t.Errorf("average %s after slots of 1s, want about that: the time in Yield does not count", average)
		}
	})
}

func TestYield(t *testing.T) {
	t.Run("another request gets the slot", func(t *testing.T) {
		l := New(1, 9)
		slot := mustAcquire(t, l)
		Yield(slot.Context(t.Context()), func() {
			Yield(slot.Context(t.Context()), func() { mustAcquire(t, l).Release() })
			if n := l.InUse(); n != 0 {
				t.Errorf("%d slots in use while all requests yield", n)
			}
		})
		if n := l.InUse(); n != 1 {
			t.Errorf("%d compute after coming back, want 1", n)
		}
		slot.Release()
		wantIdle(t, l)
	})
	t.Run("the time is over", func(t *testing.T) {
		l := New(1, 9)
		slot := mustAcquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		var other *Slot
		Yield(slot.Context(ctx), func() { other = mustAcquire(t, l); cancel() })
		slot.Release()
		if n := l.InUse(); n != 1 {
			t.Errorf("%d compute, want the other one", n)
		}
		other.Release()
		wantIdle(t, l)
	})
	t.Run("without a slot", func(t *testing.T) {
		ran := false
		Yield(t.Context(), func() { ran = true })
		if !ran {
			t.Error("it was not run")
		}
	})
}

// TestNeverTooMany has many compute and wait for others at once.
func TestNeverTooMany(t *testing.T) {
	const turns, callers = 3, 50
	l := New(turns, 2*callers)
	var computing, most atomic.Int64
	compute := func() {
		n := computing.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		time.Sleep(10 * time.Microsecond)
		computing.Add(-1)
	}
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for range 20 {
				slot, err := l.Acquire(t.Context(), tenant(strconv.Itoa(i%7)), time.Minute)
				if err != nil {
					t.Errorf("Acquire() = %v", err)
					return
				}
				compute()
				Yield(slot.Context(t.Context()), func() {})
				compute()
				slot.began = slot.began.Add(-quantum)
				Pause(slot.Context(t.Context()))
				compute()
				slot.Release()
			}
		})
	}
	group.Wait()
	if got := most.Load(); got > turns {
		t.Errorf("%d computed at once, want %d at the most", got, turns)
	}
	wantIdle(t, l)
}
