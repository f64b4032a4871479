package webhooks

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// TestBodyMemoryVictims fills the memory of 16 MiB, and checks which bodies are dropped for a new one. Sizes are MiB.
func TestBodyMemoryVictims(t *testing.T) {
	const mib = 1 << 20
	type body struct {
		name     string
		from     string
		held     int64
		age      time.Duration
		finished bool
	}
	const here, neighbour, there, far = "192.0.2.1", "192.0.2.2", "198.51.100.1", "203.0.113.1"
	const fresh, slow, slower = time.Millisecond, 4 * time.Second, 5 * time.Second
	cases := map[string]struct {
		bodies  []body
		from    string
		need    int64
		want    []string
		waiting bool
	}{
		"enough for all": {bodies: []body{{"a", here, 15, slower, false}}, from: here, need: 1},
		"the slowest goes first": {
			bodies: []body{{"a", here, 8, slow, false}, {"b", here, 8, slower, false}},
			from:   here,
			need:   1,
			want:   []string{"b"},
		},
		"as many as needed": {
			bodies: []body{{"a", here, 8, slow, false}, {"b", here, 8, slower, false}},
			from:   here,
			need:   9,
			want:   []string{"a", "b"},
		},
		"the slowest of the largest source": {
			bodies: []body{{"a", here, 4, slower, false}, {"b", there, 6, slow, false}, {"c", there, 6, slower, false}},
			from:   here,
			need:   1,
			want:   []string{"c"},
		},
		"slow before fast of a larger source": {
			bodies: []body{{"a", there, 4, slower, false}, {"b", far, 12, fresh, false}},
			from:   here,
			need:   1,
			want:   []string{"a"},
		},
		"never a finished one": {
			bodies:  []body{{"a", there, 8, slower, true}, {"b", there, 8, slower, true}},
			from:    here,
			need:    1,
			waiting: true,
		},
		"one source, all fast": {
			bodies:  []body{{"a", here, 8, fresh, false}, {"b", here, 8, fresh, false}},
			from:    here,
			need:    1,
			waiting: true,
		},
		"fast, of a source above its share": {
			bodies: []body{{"a", there, 8, fresh, false}, {"b", there, 8, 2 * fresh, false}},
			from:   here,
			need:   1,
			want:   []string{"b"},
		},
		"the newcomer would exceed its share": {
			bodies:  []body{{"a", there, 8, fresh, false}, {"b", there, 8, fresh, false}},
			from:    here,
			need:    9,
			waiting: true,
		},
		"fast, of a neighbour above its share": {
			bodies: []body{{"a", neighbour, 8, fresh, false}, {"b", neighbour, 8, 2 * fresh, false}},
			from:   here,
			need:   1,
			want:   []string{"b"},
		},
		"a /24 has one share": {
			bodies: []body{{"a", here, 8, fresh, false}, {"b", neighbour, 8, 2 * fresh, false}},
			from:   there,
			need:   1,
			want:   []string{"b"},
		},
		"a /64 has one share": {
			bodies: []body{{"a", "2001:db8::1", 8, fresh, false}, {"b", "2001:db8::2", 8, 2 * fresh, false}},
			from:   "2001:db8:0:1::1",
			need:   1,
			want:   []string{"b"},
		},
		"an address above its share in a /64": {
			bodies: []body{{"a", "2001:db8::1", 8, fresh, false}, {"b", "2001:db8:0:1::1", 8, fresh, false}},
			from:   "2001:db8::2",
			need:   1,
			want:   []string{"a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, now := newBodyMemory(16*mib), time.Now()
				var got []string
				var bodies []*largeBody
				for _, b := range tc.bodies {
					l := &largeBody{from: netip.MustParseAddr(b.from), began: now.Add(-b.age), waitLeft: time.Minute}
					l.stop = func() { got = append(got, b.name); go m.release(l) }
					if err := m.grow(t.Context(), l, b.held*mib); err != nil {
						t.Fatal(err)
					}
					if b.finished && !m.finish(l) {
						t.Fatal("a body cannot finish")
					}
					bodies = append(bodies, l)
				}
				newcomer := &largeBody{from: netip.MustParseAddr(tc.from), began: now, waitLeft: 40 * time.Millisecond}
				err := m.grow(t.Context(), newcomer, tc.need*mib)
				if waiting := errors.Is(err, errMemory); waiting != tc.waiting {
					t.Errorf("error %v, want to wait in vain: %t", err, tc.waiting)
				}
				sorted := got
				if len(sorted) == 2 && sorted[0] > sorted[1] {
					sorted[0], sorted[1] = sorted[1], sorted[0]
				}
				if diff := cmp.Diff(tc.want, sorted); diff != "" {
					t.Errorf("dropped (-want +got):\n%s", diff)
				}
				for _, l := range append(bodies, newcomer) {
					m.release(l)
				}
				checkEmpty(t, m)
			})
		})
	}
}

func checkEmpty(t *testing.T, m *bodyMemory) {
	t.Helper()
	if m.held.Load() != 0 || m.waiting != 0 || len(m.bodies)+len(m.networks)+len(m.addrs) != 0 {
		t.Errorf("in the end %d bytes are held, %d wait, %d bodies, %d networks and %d addresses are known; want none",
			m.held.Load(), m.waiting, len(m.bodies), len(m.networks), len(m.addrs))
	}
}

// TestBodyMemoryIsBounded has bodies of all sizes and speeds grow at the same time. They never hold more than there is,
// every wait ends, some arrive, and nothing is held in the end.
func TestBodyMemoryIsBounded(t *testing.T) {
	bodies := 300
	if testing.Short() {
		bodies = 60
	}
	synctest.Test(t, func(t *testing.T) {
		const total, largest = 8 << 20, 7 << 20
		m := newBodyMemory(total)
		random := rand.New(rand.NewPCG(1, 2))
		var senders sync.WaitGroup
		var mu sync.Mutex
		arrived := 0
		for i := range bodies {
			size, pause := random.Int64N(largest), time.Duration(random.Int64N(int64(200*time.Millisecond)))
			senders.Go(func() {
				l := &largeBody{
					from:     netip.AddrFrom4([4]byte{10, 0, byte(i % 5), byte(i % 7)}),
					began:    time.Now(),
					waitLeft: maxMemoryWait,
					stop:     func() {},
				}
				defer m.release(l)
				for n := int64(2 * smallBody); ; n *= 2 {
					if err := m.grow(context.Background(), l, min(n, size+1)); err != nil {
						return
					}
					if held := m.held.Load(); held > total {
						t.Errorf("%d bytes are held, want at most %d", held, total)
					}
					time.Sleep(pause)
					l.received.Store(min(n, size))
					if n > size {
						break
					}
				}
				if m.finish(l) {
					time.Sleep(pause)
					mu.Lock()
					defer mu.Unlock()
					arrived++
				}
			})
		}
		senders.Wait()
		if arrived == 0 {
			t.Error("no body arrived")
		}
		checkEmpty(t, m)
	})
}

// TestBodyMemoryDeadlock has bodies that all need more to go on. One is dropped, the others arrive.
func TestBodyMemoryDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBodyMemory(8)
		errs := make([]error, 2)
		var senders sync.WaitGroup
		for i := range errs {
			senders.Go(func() {
				l := &largeBody{began: time.Now(), waitLeft: maxMemoryWait, stop: func() {}}
				defer m.release(l)
				for _, size := range []int64{4, 8} {
					if errs[i] == nil {
						errs[i] = m.grow(context.Background(), l, size)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		senders.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("errors %v, want exactly one", errs)
		}
		checkEmpty(t, m)
	})
}

// TestWaitForMemoryIsBounded checks that a caller's long timeout does not make it wait longer than the bound.
func TestWaitForMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		h := handlerOf(t, Options{Evaluator: holding(20 * time.Second), Registerer: registry, MaxBodyBytes: 40 << 10, MaxInFlightBytes: 40 << 10})
		large := validReview() + strings.Repeat(" ", smallBody)
		var held sync.WaitGroup
		held.Go(func() { serve(h, "/validate/held?timeout=30s", large) })
		synctest.Wait()
		began := time.Now()
		w := serve(h, "/validate/other?timeout=30s", large)
		if took := time.Since(began); w.Code != http.StatusServiceUnavailable || took != maxMemoryWait {
			t.Errorf("answered %d after %s, want 503 after %s", w.Code, took, maxMemoryWait)
		}
		held.Wait()
		checkIdle(t, gather(t, registry), shedMemory)
	})
}
