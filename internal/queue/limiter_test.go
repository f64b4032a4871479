package queue

import (
	"context"
	"errors"
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

func mustTake(t *testing.T, l *Limiter) *Slot {
	t.Helper()
	turn, err := l.Acquire(t.Context(), time.Minute)
	if err != nil {
		t.Fatalf("Take() = %v", err)
	}
	return turn
}

// wantIdle checks that nothing was lost.
func wantIdle(t *testing.T, l *Limiter) {
	t.Helper()
	if c, w, a := l.InUse(), l.Waiting(), l.accepted.Load(); c != 0 || w != 0 || a != 0 {
		t.Errorf("%d compute, %d wait, %d are accepted in the end; want none", c, w, a)
	}
}

func TestNoTurn(t *testing.T) {
	tests := map[string]struct {
		turns, limit int
		pace         time.Duration // of turns before
		patience     time.Duration
		cancel       time.Duration // after which the caller leaves
		wantReason   Reason
		wantErr      error
		wantAfter    time.Duration
	}{
		"too many":                     {turns: 1, limit: 1, patience: time.Hour, wantReason: Full},
		"patience ends":                {turns: 1, limit: 9, patience: time.Second, wantReason: Deadline, wantAfter: time.Second},
		"it would take too long":       {turns: 1, limit: 9, pace: 4 * time.Second, patience: 3 * time.Second, wantReason: Deadline},
		"it may not take too long":     {turns: 1, limit: 9, pace: 2 * time.Second, patience: 3 * time.Second, wantReason: Deadline, wantAfter: 3 * time.Second},
		"it would, but for more turns": {turns: 2, limit: 9, pace: 4 * time.Second, patience: 3 * time.Second, wantReason: Deadline, wantAfter: 3 * time.Second},
		"the caller leaves":            {turns: 1, limit: 9, patience: time.Hour, cancel: time.Second, wantErr: context.Canceled, wantAfter: time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(tc.turns, tc.limit)
				l.averageDuration.Store(int64(tc.pace))
				var held []*Slot
				for range tc.turns {
					held = append(held, mustTake(t, l))
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				began := time.Now()
				_, err := l.Acquire(ctx, tc.patience)
				if reasonOf(err) != tc.wantReason || tc.wantErr != nil && !errors.Is(err, tc.wantErr) {
					t.Errorf("Take() = %v, want reason %q, error %v", err, tc.wantReason, tc.wantErr)
				}
				if after := time.Since(began); after != tc.wantAfter {
					t.Errorf("answered after %s, want %s", after, tc.wantAfter)
				}
				for _, turn := range held {
					turn.Release()
				}
				wantIdle(t, l)
			})
		})
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 100)
		first := mustTake(t, l)
		var order []int
		for i := range 20 {
			go func() {
				turn := mustTake(t, l)
				order = append(order, i)
				turn.Release()
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

func TestPaceFollowsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 9)
		for range 50 {
			turn := mustTake(t, l)
			Yield(turn.Context(t.Context()), func() { time.Sleep(time.Hour) })
			time.Sleep(time.Second)
			turn.Release()
		}
		if pace := time.Duration(l.averageDuration.Load()); pace < 900*time.Millisecond || pace > time.Second {
			t.Errorf("pace %s after turns of 1s, want about that: who waits for somebody else has no turn", pace)
		}
	})
}

func TestAway(t *testing.T) {
	t.Run("another one computes", func(t *testing.T) {
		l := New(1, 9)
		turn := mustTake(t, l)
		Yield(turn.Context(t.Context()), func() {
			Yield(turn.Context(t.Context()), func() { mustTake(t, l).Release() })
			if n := l.InUse(); n != 0 {
				t.Errorf("%d compute while all are away", n)
			}
		})
		if n := l.InUse(); n != 1 {
			t.Errorf("%d compute after coming back, want 1", n)
		}
		turn.Release()
		wantIdle(t, l)
	})
	t.Run("the time is over", func(t *testing.T) {
		l := New(1, 9)
		turn := mustTake(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		var other *Slot
		Yield(turn.Context(ctx), func() { other = mustTake(t, l); cancel() })
		turn.Release()
		if n := l.InUse(); n != 1 {
			t.Errorf("%d compute, want the other one", n)
		}
		other.Release()
		wantIdle(t, l)
	})
	t.Run("without a turn", func(t *testing.T) {
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
	l := New(turns, callers)
	var computing, most atomic.Int64
	compute := func() {
		n := computing.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		time.Sleep(10 * time.Microsecond)
		computing.Add(-1)
	}
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range 20 {
				turn, err := l.Acquire(t.Context(), time.Minute)
				if err != nil {
					t.Errorf("Take() = %v", err)
					return
				}
				compute()
				Yield(turn.Context(t.Context()), func() {})
				compute()
				turn.Release()
			}
		})
	}
	group.Wait()
	if got := most.Load(); got > turns {
		t.Errorf("%d computed at once, want %d at the most", got, turns)
	}
	wantIdle(t, l)
}
