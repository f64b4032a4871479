package connections

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"
)

// TestChooseVictims checks which connections are evicted at the limit. A connection is written as age, address and state.
func TestChooseVictims(t *testing.T) {
	const silent, speaking, greeted, idle, busy = "silent", "speaking", "greeted", "idle", "busy"
	type connection struct {
		age   int64
		from  string
		state string
	}
	several := func(n int, c connection) []connection {
		out := make([]connection, n)
		for i := range out {
			out[i] = c
			out[i].age += int64(i)
		}
		return out
	}
	const here, there = "192.0.2.1", "192.0.2.2"
	cases := map[string]struct {
		limit      int
		open       []connection
		newAddress string
		want       []int64 // ages
		wantReason string
	}{
		"all are silent, of one address": {
			limit:      32,
			open:       several(32, connection{1, here, silent}),
			newAddress: here,
			want:       []int64{32, 31},
			wantReason: reasonSilent,
		},
		"all are silent, of another": {
			limit:      32,
			open:       several(32, connection{1, there, silent}),
			newAddress: here,
			want:       []int64{32, 31},
			wantReason: reasonSilent,
		},
		"the young ones are spared": {
			limit:      4,
			open:       []connection{{1, here, silent}, {2, here, silent}, {900, there, busy}, {901, there, idle}},
			newAddress: here,
			want:       []int64{2},
			wantReason: reasonSilent,
		},
		"few are silent, all of one": {
			limit:      32,
			open:       append(several(2, connection{1, here, silent}), several(30, connection{5, here, idle})...),
			newAddress: here,
			wantReason: reasonIdle,
		},
		"begun handshakes are spared": {
			limit: 32,
			open: append(several(29, connection{1, here, silent}), connection{50, here, speaking},
				connection{60, there, greeted}, connection{70, there, idle}),
			newAddress: here,
			want:       []int64{29, 28},
			wantReason: reasonSilent,
		},
		"complete handshakes are spared": {
			limit:      32,
			open:       append(several(31, connection{1, here, speaking}), connection{60, there, greeted}),
			newAddress: here,
			want:       []int64{31, 30},
			wantReason: reasonSilent,
		},
		"young handshakes are spared": {
			limit:      32,
			open:       append(several(24, connection{10, here, greeted}), several(8, connection{1, there, speaking})...),
			newAddress: here,
			want:       []int64{33, 32},
			wantReason: reasonSilent,
		},
		"old ones are not": {
			limit:      32,
			open:       append(several(24, connection{10, here, greeted}), several(8, connection{40, there, speaking})...),
			newAddress: here,
			want:       []int64{47, 46},
			wantReason: reasonSilent,
		},
		"none is silent, all of one": {
			limit:      32,
			open:       several(32, connection{1, here, idle}),
			newAddress: here,
			wantReason: reasonIdle,
		},
		"another has most of them": {
			limit:      32,
			open:       append(several(20, connection{50, there, idle}), several(12, connection{100, here, idle})...),
			newAddress: here,
			want:       []int64{69, 68},
			wantReason: reasonIdle,
		},
		"another has most, all busy": {
			limit:      4,
			open:       several(4, connection{1, there, busy}),
			newAddress: here,
			wantReason: reasonIdle,
		},
		"another has half of them": {
			limit:      4,
			open:       append(several(2, connection{1, there, idle}), several(2, connection{1, here, idle})...),
			newAddress: here,
			wantReason: reasonIdle,
		},
		"new, of the address with most": {
			limit:      4,
			open:       append(several(3, connection{1, there, idle}), connection{9, here, idle}),
			newAddress: there,
			wantReason: reasonIdle,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var all []connState
			for _, c := range tc.open {
				named := &Conn{}
				named.answered.Store(c.age)
				all = append(all, connState{
					conn: named, from: netip.MustParseAddr(c.from),
					progress: map[string]int32{
						silent:   progressNone,
						speaking: progressData,
						greeted:  progressHandshake,
						idle:     progressHandshake,
						busy:     progressHandshake,
					}[c.state], since: -c.age,
					proven: c.state == idle || c.state == busy, busy: c.state == busy,
				})
			}
			var got []int64
			victims, reason := chooseVictims(all, netip.MustParseAddr(tc.newAddress), tc.limit)
			for _, c := range victims {
				got = append(got, c.answered.Load())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || reason != tc.wantReason {
				t.Errorf("reason %q, want %q; ages (-want +got):\n%s", reason, tc.wantReason, diff)
			}
		})
	}
}

// TestConnectionAge checks that connections retire at different ages, by the clock and chance of the options, and after
// the last request.
func TestConnectionAge(t *testing.T) {
	const spread = MaxAge - MinAge
	for name, tc := range map[string]struct {
		chance float64 // of 1
		age    time.Duration
		before int64 // answers
		want   bool
	}{
		"before the least age":    {chance: 0, age: MinAge - 1},
		"at the least age":        {chance: 0, age: MinAge, want: true},
		"between, and younger":    {chance: 0.5, age: MinAge + spread/2 - 1},
		"between":                 {chance: 0.5, age: MinAge + spread/2, want: true},
		"before the greatest age": {chance: 1, age: MaxAge - 2},
		"at the greatest age":     {chance: 1, age: MaxAge, want: true},
		"999th answer":            {before: 998},
		"1000th answer":           {before: 999, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testclock.NewFakePassiveClock(time.Unix(1e9, 0))
			random := func(n int64) int64 {
				if n != int64(spread) {
					t.Errorf("asked for a number below %d, want %d", n, int64(spread))
				}
				return min(int64(tc.chance*float64(n)), n-1)
			}
			client, server := net.Pipe()
			defer client.Close()
			defer server.Close()
			c := NewListener(nil, newSet(1), Options{Clock: clock, Random: random}).newConn(server)
			c.answered.Store(tc.before)
			clock.SetTime(clock.Now().Add(tc.age))
			if got := c.Retire(clock.Now()); got != tc.want {
				t.Errorf("retires: %t, want %t", got, tc.want)
			}
			c.Begin()
			c.Prove()
			c.End(clock.Now())
			if !c.proven.Load() || c.busy.Load() || c.since.Load() != clock.Now().UnixNano() {
				t.Errorf("after a request: proven %t, busy %t, used %s", c.proven.Load(), c.busy.Load(), time.Unix(0, c.since.Load()))
			}
		})
	}
}

// TestAgesDiffer checks that connections that are opened together do not retire together.
func TestAgesDiffer(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Unix(1e9, 0))
	l := NewListener(nil, newSet(1), Options{Clock: clock})
	var ages []time.Duration
	for range 1000 {
		_, server := net.Pipe()
		ages = append(ages, l.newConn(server).retireAt.Sub(clock.Now()))
	}
	slices.Sort(ages)
	if ages[0] < MinAge || ages[999] > MaxAge || ages[500]-ages[0] < 10*time.Second || ages[999]-ages[500] < 10*time.Second {
		t.Errorf("ages from %s over %s to %s, want them spread from %s to %s", ages[0], ages[500], ages[999], MinAge, MaxAge)
	}
}

// newSet returns a set that does not report evictions.
func newSet(limit int) *Set { return NewSet(limit, func(string) {}) }
