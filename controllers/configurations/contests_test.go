package configurations

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ostiary/ostiary/internal/registration"
)

var fought = key{registration.PhaseValidate, "ostiary-validate-a"}

// fight changes a configuration some time after each repair, and counts the
// repairs within a period.
func fight(c *Contests, reaction, period time.Duration) (repairs int, longest time.Duration) {
	now := time.Unix(0, 0)
	for end := now.Add(period); now.Before(end); {
		now = now.Add(reaction) // the change
		left := c.wait(fought, now)
		longest = max(longest, left)
		now = now.Add(left)
		repair(c, `the field manager "rival"`, now)
		repairs++
	}
	return repairs, longest
}

// repair puts the configuration right, and names who changed it where that is
// asked for.
func repair(c *Contests, rival string, now time.Time) {
	if c.due(fought, now) {
		c.name(fought, rival)
	}
	c.repaired(fought, now)
}

func byAFifth(d time.Duration) time.Duration { return d * 4 / 5 }

func TestWaitsGrowWithTheFight(t *testing.T) {
	tests := map[string]struct {
		reaction    time.Duration
		wantRepairs [2]int // within an hour, at least and at most
		wantLongest time.Duration
	}{
		"who watches is backed off from":        {reaction: 20 * time.Millisecond, wantRepairs: [2]int{75, 90}, wantLongest: longestWait * 4 / 5},
		"who comes each second is put right":    {reaction: time.Second, wantRepairs: [2]int{3600, 3600}},
		"who comes each 3 minutes is put right": {reaction: 3 * time.Minute, wantRepairs: [2]int{20, 20}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := NewContests(prometheus.NewRegistry())
			c.shorten = byAFifth
			repairs, longest := fight(c, tt.reaction, time.Hour)
			if repairs < tt.wantRepairs[0] || repairs > tt.wantRepairs[1] {
				t.Errorf("%d repairs in an hour, want %d", repairs, tt.wantRepairs)
			}
			if longest > tt.wantLongest || longest < tt.wantLongest-time.Second {
				t.Errorf("a change stood for %v, want %v at most", longest, tt.wantLongest)
			}
			if got := c.Contested()[fought.name]; got != `the field manager "rival"` {
				t.Errorf("contested by %q, want the rival", got)
			}
			if got := c.Contested()["ostiary-validate-b"]; got != "" {
				t.Errorf("another configuration is contested by %q", got)
			}
		})
	}
}

// A change each second, by the clock, is no fight, also where repairs were slow
// for a while: what was taken for one has to be put right at once again.
func TestSlowRepairsAreNoFight(t *testing.T) {
	c := NewContests(prometheus.NewRegistry())
	c.shorten = byAFifth
	start := time.Unix(0, 0)
	var repaired time.Time
	for second := range 200 {
		tick := start.Add(time.Duration(second) * time.Second)
		if !repaired.Before(tick) {
			continue // it has not been put right since the last change
		}
		left := c.wait(fought, tick)
		if second > 120 && left > 0 {
			t.Fatalf("after %d seconds, 20 of them slow, a change is left as it is for %v", second, left)
		}
		repaired = tick.Add(left)
		if second < 20 {
			repaired = repaired.Add(700 * time.Millisecond)
		}
		repair(c, unnamed, repaired)
	}
}

func TestHalf(t *testing.T) {
	for _, d := range []time.Duration{1, firstWait, longestWait} {
		for range 100 {
			if got := half(d); got < d/2 || got > d {
				t.Fatalf("half(%v) = %v", d, got)
			}
		}
	}
}

func TestContestEndsInPeace(t *testing.T) {
	c := NewContests(prometheus.NewRegistry())
	start := time.Unix(0, 0)
	for i := range patience {
		if c.Contested()[fought.name] != "" {
			t.Errorf("contested after %d repairs", i)
		}
		repair(c, unnamed, start)
	}
	repair(c, "the rival", start)
	if c.due(fought, start.Add(reask-1)) {
		t.Error("the API server is asked again for who it is after less than a minute")
	}
	start = start.Add(reask)
	repair(c, unnamed, start)
	if got := c.Contested()[fought.name]; got != "the rival" {
		t.Errorf("contested by %q, want the name that was known once", got)
	}
	changed := c.Subscribe(t.Context())
	left := c.settle(start.Add(time.Second))
	if left <= 0 || left > peace {
		t.Errorf("settles in %v, want within %v", left, peace)
	}
	if n := testutil.CollectAndCount(c.gauge); n != 1 {
		t.Errorf("%d series while contested, want 1", n)
	}
	if next := c.settle(start.Add(time.Second + left)); next != 0 || c.Contested()[fought.name] != "" {
		t.Errorf("after %v of peace it is contested by %q, and settles in %v", left, c.Contested()[fought.name], next)
	}
	if n := testutil.CollectAndCount(c.gauge); n != 0 {
		t.Errorf("%d series in peace, want none", n)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was told of the end")
	}
}
