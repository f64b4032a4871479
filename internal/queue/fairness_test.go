package queue

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// work uses a slot for a number of steps, and pauses between them.
func work(ctx context.Context, slot *Slot, steps int, each time.Duration) {
	ctx = slot.Context(ctx)
	for range steps {
		time.Sleep(each)
		Pause(ctx)
	}
	slot.Release()
}

// flood has a flow work with a number of requests at a time until ctx ends.
func flood(ctx context.Context, group *sync.WaitGroup, l *Limiter, f Flow, parallel, steps int, each time.Duration) {
	for range parallel {
		group.Go(func() {
			for ctx.Err() == nil {
				if slot, err := l.Acquire(ctx, f, time.Minute); err == nil {
					work(ctx, slot, steps, each)
				}
			}
		})
	}
}

// TestGreedyFlowDoesNotDelayOthers has one tenant with 64 requests at a time of 100 ms each. Requests of other tenants
// wait for the end of one step of its requests, and for nothing while a slot is left for them.
func TestGreedyFlowDoesNotDelayOthers(t *testing.T) {
	tests := map[string]struct {
		slots   int
		steps   int
		each    time.Duration
		greedy  int // tenants
		maxWait time.Duration
	}{
		"one slot":                       {slots: 1, steps: 100, each: time.Millisecond, greedy: 1, maxWait: quantum + time.Millisecond},
		"one slot, long steps":           {slots: 1, steps: 1, each: 100 * time.Millisecond, greedy: 1, maxWait: 100 * time.Millisecond},
		"a slot is left":                 {slots: 8, steps: 1, each: 100 * time.Millisecond, greedy: 1},
		"a slot is left by two":          {slots: 8, steps: 1, each: 100 * time.Millisecond, greedy: 2},
		"long steps of many":             {slots: 8, steps: 1, each: 100 * time.Millisecond, greedy: 9, maxWait: 100 * time.Millisecond},
		"more greedy tenants than slots": {slots: 4, steps: 100, each: time.Millisecond, greedy: 9, maxWait: quantum + time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(tc.slots, 10_000)
				ctx, stop := context.WithCancel(t.Context())
				var group sync.WaitGroup
				for i := range tc.greedy {
					flood(ctx, &group, l, tenant(fmt.Sprint("greedy ", i)), 64, tc.steps, tc.each)
				}
				time.Sleep(time.Second)
				for i := range 50 {
					time.Sleep(17 * time.Millisecond)
					began := time.Now()
					slot := mustAcquireFor(t, l, tenant(fmt.Sprint("other ", i%3)))
					if waited := time.Since(began); waited > tc.maxWait {
						t.Errorf("request %d of another tenant waited %s, want at most %s", i, waited, tc.maxWait)
					}
					time.Sleep(time.Millisecond)
					slot.Release()
				}
				stop()
				group.Wait()
				wantIdle(t, l)
			})
		})
	}
}

// TestEqualShares has tenants with different numbers and lengths of requests. Each gets the same time in slots.
func TestEqualShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(2, 10_000)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		var mu sync.Mutex
		got := map[string]time.Duration{}
		load := map[string]struct {
			parallel int
			each     time.Duration
		}{"many": {500, 3 * time.Millisecond}, "long": {20, 40 * time.Millisecond}, "few": {4, 2 * time.Millisecond}}
		for name, with := range load {
			for range with.parallel {
				group.Go(func() {
					for ctx.Err() == nil {
						if slot, err := l.Acquire(ctx, tenant(name), time.Hour); err == nil {
							work(ctx, slot, 1, with.each)
							mu.Lock()
							got[name] += with.each
							mu.Unlock()
						}
					}
				})
			}
		}
		time.Sleep(30 * time.Second)
		stop()
		group.Wait()
		for name, used := range got {
			if want := 20 * time.Second; used < want*95/100 || used > want*105/100 {
				t.Errorf("%s used slots for %s, want about %s of 2 slots in 30s; all: %v", name, used, want, got)
			}
		}
		wantIdle(t, l)
	})
}

// TestNewFlowsDoNotStarveAnother has a new tenant come for every slot. One that has used much gets its turn too.
func TestNewFlowsDoNotStarveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 10_000)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for i := range 5 {
			group.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					slot, err := l.Acquire(ctx, tenant(fmt.Sprint(i, " ", n)), time.Hour)
					if err == nil {
						work(ctx, slot, 1, 10*time.Millisecond)
					}
				}
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		for range 10 {
			work(t.Context(), mustAcquireFor(t, l, tenant("long")), 1, 100*time.Millisecond)
		}
		// Each of the six flows has an equal share, and ten waits are for 100 ms each.
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("ten requests of 100ms took %s", took)
		}
		stop()
		group.Wait()
		wantIdle(t, l)
	})
}

// TestExpectedWaitIsThatOfTheFlow has a tenant with more work than fits into its time. Its requests are rejected early,
// and those of others are not.
func TestExpectedWaitIsThatOfTheFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, maxWait = 100 * time.Millisecond, 1050 * time.Millisecond
		l := New(1, 1000)
		work(t.Context(), mustAcquireFor(t, l, tenant("greedy")), 20, each/20) // so that it is known how long one takes
		cells := l.usage.of(tenant("greedy"))
		cells.add(averageOf, int64(each)-cells.least(averageOf))
		var group sync.WaitGroup
		var mu sync.Mutex
		var early, served int
		for range 64 {
			group.Go(func() {
				began := time.Now()
				slot, err := l.Acquire(t.Context(), tenant("greedy"), maxWait)
				switch {
				case err == nil:
					work(t.Context(), slot, 20, each/20)
					mu.Lock()
					served++
					mu.Unlock()
				case reasonOf(err) == Deadline && time.Since(began) == 0:
					mu.Lock()
					early++
					mu.Unlock()
				default:
					t.Errorf("Acquire() = %v after %s", err, time.Since(began))
				}
			})
		}
		synctest.Wait()
		for i := range 10 {
			slot, err := l.Acquire(t.Context(), tenant("other"), 2*quantum)
			if err != nil {
				t.Fatalf("request %d of another tenant: %v", i, err)
			}
			slot.Release()
		}
		group.Wait()
		if served != 11 || early != 64-served {
			t.Errorf("%d were served and %d rejected early, want 11 and %d", served, early, 64-11)
		}
		wantIdle(t, l)
	})
}

// TestFlowDoesNotFillTheLimit has a tenant with more requests than the limit, some of which wait for I/O, so that none of
// them could be rejected later. Others are accepted.
func TestFlowDoesNotFillTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, maxShare = 30, 20
		l := New(2, limit)
		release := make(chan struct{})
		var group sync.WaitGroup
		var mu sync.Mutex
		full := 0
		for i := range 100 {
			group.Go(func() {
				slot, err := l.Acquire(t.Context(), tenant("greedy"), time.Minute)
				if err != nil {
					if reasonOf(err) != Full {
						t.Errorf("Acquire() = %v", err)
					}
					mu.Lock()
					full++
					mu.Unlock()
					return
				}
				if i%2 == 0 {
					Yield(slot.Context(t.Context()), func() { <-release })
				} else {
					<-release
				}
				slot.Release()
			})
		}
		synctest.Wait()
		if full != 100-maxShare {
			t.Errorf("%d of 100 rejected, want %d", full, 100-maxShare)
		}
		for i := range 5 {
			group.Go(func() { mustAcquireFor(t, l, tenant("other")).Release() })
			synctest.Wait()
			if got, want := l.accepted.Load(), int64(maxShare+i+1); got != want {
				t.Errorf("%d requests accepted, want %d", got, want)
			}
		}
		close(release)
		group.Wait()
		wantIdle(t, l)
	})
}

// TestMemoryDoesNotGrowWithFlows serves 100,000 flows, of which some wait.
func TestMemoryDoesNotGrowWithFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, callers, each = 64, 100, 1000
		l := New(4, limit)
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				for j := range each {
					slot, err := l.Acquire(t.Context(), Flow{User: strconv.Itoa(i*each + j)}, time.Minute)
					if err != nil {
						if reasonOf(err) != Full {
							t.Errorf("Acquire() = %v", err)
						}
						time.Sleep(time.Microsecond)
						continue
					}
					l.mu.Lock()
					if n := len(l.flows.byName); n > limit {
						t.Errorf("%d flows wait, more than requests are accepted", n)
					}
					l.mu.Unlock()
					work(t.Context(), slot, 1, time.Microsecond)
				}
			})
		}
		group.Wait()
		wantIdle(t, l)
	})
}

// TestFewFlowsShareAllCells checks how often a flow is mistaken for busy ones.
func TestFewFlowsShareAllCells(t *testing.T) {
	const busy, others = 64, 100_000
	u := newUsage()
	for i := range busy {
		c := u.of(tenant(fmt.Sprint("busy ", i)))
		c.add(slotsOf, 1)
	}
	mistaken := 0
	for i := range others {
		c := u.of(tenant(strconv.Itoa(i)))
		if c.least(slotsOf) > 0 {
			mistaken++
		}
	}
	if mistaken > others/500 { // expected: (1-(1-1/512)^64)^4, or 19 of 100,000
		t.Errorf("%d of %d flows share all their cells with %d busy ones", mistaken, others, busy)
	}
}

// model is what a Limiter does, with exact counts and without regard to speed.
type model struct {
	slots   int
	virtual int64
	flows   map[string]*modelFlow
	turns   int
}

type modelFlow struct {
	virtual int64
	running int
	waiting []int // requests
	turn    int
}

func (m *model) flow(name string) *modelFlow {
	if m.flows[name] == nil {
		m.flows[name] = &modelFlow{}
	}
	return m.flows[name]
}

func (m *model) count() (running, waiting int) {
	for _, f := range m.flows {
		running, waiting = running+f.running, waiting+len(f.waiting)
	}
	return running, waiting
}

// arrive adds a request, at the front of its flow if it had a slot before, and returns the requests that get slots.
func (m *model) arrive(name string, request int, first bool) []int {
	f := m.flow(name)
	if _, waiting := m.count(); waiting == 0 && !first {
		if running, _ := m.count(); f.running < 2*(m.slots-running) {
			f.running++
			m.virtual = max(m.virtual, f.virtual)
			return []int{request}
		}
	}
	if len(f.waiting) == 0 {
		m.turns++
		f.turn = m.turns
	}
	at := len(f.waiting)
	if first {
		at = 0
	}
	f.waiting = slices.Insert(f.waiting, at, request)
	return m.dispatch()
}

// stop ends the use of a slot.
func (m *model) stop(name string, used time.Duration) {
	f := m.flow(name)
	f.virtual = max(f.virtual, m.virtual) + int64(used)
	f.running--
	if _, waiting := m.count(); waiting > 0 {
		m.virtual += int64(used) / int64(waiting+1)
	}
}

func (m *model) dispatch() (got []int) {
	for {
		running, _ := m.count()
		var best *modelFlow
		for _, f := range m.flows {
			if len(f.waiting) == 0 || f.running >= 2*(m.slots-running) {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(max(f.virtual, m.virtual), max(best.virtual, m.virtual)), cmp.Compare(f.turn, best.turn)) < 0 {
				best = f
			}
		}
		if best == nil {
			return got
		}
		got = append(got, best.waiting[0])
		best.waiting = best.waiting[1:]
		best.running++
		m.turns++
		best.turn = m.turns
		m.virtual = max(m.virtual, best.virtual)
		best.virtual = m.virtual + int64(leastUse)
	}
}

// TestModel has requests of random flows come, pause and end at random times, and compares which of them have slots with
// a model.
func TestModel(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { compareWithModel(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

type modelledRequest struct {
	id        int
	flow      string
	began     time.Time
	pause     chan bool // false ends the request
	holdsSlot bool
}

func compareWithModel(t *testing.T, random *rand.Rand) {
	slots := 1 + random.IntN(9)
	l, m := New(slots, 100_000), &model{slots: slots, flows: map[string]*modelFlow{}}
	var mu sync.Mutex // guards holdsSlot
	var all []*modelledRequest
	set := func(r *modelledRequest, holds bool) {
		mu.Lock()
		defer mu.Unlock()
		r.holdsSlot = holds
	}
	serve := func(r *modelledRequest) {
		slot := mustAcquireFor(t, l, tenant(r.flow))
		set(r, true)
		for <-r.pause {
			set(r, false)
			Pause(slot.Context(t.Context()))
			set(r, true)
		}
		set(r, false)
		slot.Release()
	}
	want := map[int]bool{}
	grant := func(got []int) {
		for _, id := range got {
			want[id], all[id].began = true, time.Now()
		}
	}
	step := func() {
		holding := slices.DeleteFunc(slices.Clone(all), func(r *modelledRequest) bool { return !want[r.id] })
		switch arrives := random.IntN(3) == 0 && len(all) < 300; {
		case arrives || len(holding) == 0:
			r := &modelledRequest{id: len(all), flow: strconv.Itoa(int(random.ExpFloat64() * 3)), pause: make(chan bool)}
			all = append(all, r)
			grant(m.arrive(r.flow, r.id, false))
			go serve(r)
		default:
			time.Sleep(quantum + time.Duration(random.IntN(1e8)))
			r := holding[random.IntN(len(holding))]
			ends := random.IntN(2) == 0
			if _, waiting := m.count(); waiting > 0 || ends {
				want[r.id] = false
				m.stop(r.flow, time.Since(r.began))
				if ends {
					grant(m.dispatch())
				} else {
					grant(m.arrive(r.flow, r.id, true))
				}
			}
			r.pause <- !ends
		}
		synctest.Wait()
	}
	check := func() {
		for _, r := range all {
			if r.holdsSlot != want[r.id] {
				t.Fatalf("%d slots: request %d of flow %s has a slot: %t, want %t", slots, r.id, r.flow, r.holdsSlot, want[r.id])
			}
		}
	}
	for range 600 {
		step()
		check()
	}
	for running, waiting := m.count(); running+waiting > 0; running, waiting = m.count() {
		for _, r := range all {
			if want[r.id] {
				time.Sleep(time.Millisecond)
				want[r.id] = false
				m.stop(r.flow, time.Since(r.began))
				grant(m.dispatch())
				r.pause <- false
				synctest.Wait()
				check()
				break
			}
		}
	}
	wantIdle(t, l)
}
