package configurations

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ostiary/ostiary/internal/registration"
)

var contestedKey = registration.Key{Phase: registration.PhaseValidate, Name: "ostiary-validate-a"}

// simulateConflict changes a configuration a fixed time after each repair, and
// counts the repairs within a period.
func simulateConflict(c *ConflictTracker, reaction, period time.Duration) (repairs int, longest time.Duration) {
	now := time.Unix(0, 0)
	for end := now.Add(period); now.Before(end); {
		now = now.Add(reaction) // the change
		left := c.repairDelay(contestedKey, now)
		longest = max(longest, left)
		now = now.Add(left)
		repair(c, `the field manager "other"`, now)
		repairs++
	}
	return repairs, longest
}

// repair records a repair, and the client's name if it is due.
func repair(c *ConflictTracker, manager string, now time.Time) {
	if c.shouldIdentify(contestedKey, now) {
		c.recordManager(contestedKey, manager)
	}
	c.recordRepair(contestedKey, now)
}

func lessAFifth(d time.Duration) time.Duration { return d * 4 / 5 }

func TestBackoffGrows(t *testing.T) {
	tests := map[string]struct {
		reaction    time.Duration
		wantRepairs [2]int // within an hour: minimum and maximum
		wantLongest time.Duration
	}{
		"fast reverts are backed off":         {reaction: 20 * time.Millisecond, wantRepairs: [2]int{75, 90}, wantLongest: maxBackoff * 4 / 5},
		"changes each second are repaired":    {reaction: time.Second, wantRepairs: [2]int{3600, 3600}},
		"changes each 3 minutes are repaired": {reaction: 3 * time.Minute, wantRepairs: [2]int{20, 20}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := NewConflictTracker(prometheus.NewRegistry())
			c.jitter = lessAFifth
			repairs, longest := simulateConflict(c, tt.reaction, time.Hour)
			if repairs < tt.wantRepairs[0] || repairs > tt.wantRepairs[1] {
				t.Errorf("%d repairs in an hour, want %d", repairs, tt.wantRepairs)
			}
			if longest > tt.wantLongest || longest < tt.wantLongest-time.Second {
				t.Errorf("a change lasted %v, want at most %v", longest, tt.wantLongest)
			}
			if got := c.OtherManagers()[contestedKey.Name]; got != `the field manager "other"` {
				t.Errorf("contested by %q, want the other field manager", got)
			}
			if got := c.OtherManagers()["ostiary-validate-b"]; got != "" {
				t.Errorf("another configuration is contested by %q", got)
			}
		})
	}
}

// A client that changes a configuration each second is not backed off, not even
// after slow repairs that looked like fast reverts.
func TestSlowRepairsAreNoConflict(t *testing.T) {
	c := NewConflictTracker(prometheus.NewRegistry())
	c.jitter = lessAFifth
	start := time.Unix(0, 0)
	var repaired time.Time
	for second := range 200 {
		tick := start.Add(time.Duration(second) * time.Second)
		if !repaired.Before(tick) {
			continue // not repaired since the last change
		}
		left := c.repairDelay(contestedKey, tick)
		if second > 120 && left > 0 {
			t.Fatalf("after %d seconds, 20 of them slow, the repair waits for %v", second, left)
		}
		repaired = tick.Add(left)
		if second < 20 {
			repaired = repaired.Add(700 * time.Millisecond)
		}
		repair(c, unknownManager, repaired)
	}
}

func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{1, initialBackoff, maxBackoff} {
		for range 100 {
			if got := jitter(d); got < d/2 || got > d {
				t.Fatalf("jitter(%v) = %v", d, got)
			}
		}
	}
}

func TestConflictExpires(t *testing.T) {
	c := NewConflictTracker(prometheus.NewRegistry())
	start := time.Unix(0, 0)
	for i := range conflictThreshold {
		if c.OtherManagers()[contestedKey.Name] != "" {
			t.Errorf("contested after %d repairs", i)
		}
		repair(c, unknownManager, start)
	}
	repair(c, "the other client", start)
	if c.shouldIdentify(contestedKey, start.Add(identifyInterval-1)) {
		t.Error("managedFields are read again after less than identifyInterval")
	}
	start = start.Add(identifyInterval)
	repair(c, unknownManager, start)
	if got := c.OtherManagers()[contestedKey.Name]; got != "the other client" {
		t.Errorf("contested by %q, want the name that is on record", got)
	}
	changed := c.Subscribe(t.Context())
	left := c.expire(start.Add(time.Second))
	if left <= 0 || left > quietPeriod {
		t.Errorf("expires in %v, want within %v", left, quietPeriod)
	}
	if n := testutil.CollectAndCount(c.gauge); n != 1 {
		t.Errorf("%d series while contested, want 1", n)
	}
	if next := c.expire(start.Add(time.Second + left)); next != 0 || c.OtherManagers()[contestedKey.Name] != "" {
		t.Errorf("after %v without changes it is contested by %q, and expires in %v", left, c.OtherManagers()[contestedKey.Name], next)
	}
	if n := testutil.CollectAndCount(c.gauge); n != 0 {
		t.Errorf("%d series after expiry, want none", n)
	}
	select {
	case <-changed:
	default:
		t.Error("no notification about the expiry")
	}
}
