package configurations

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/internal/registration"
)

// A policy settles when API servers have had time to hear of the last write that
// changes whom they call, which may be an announcement.
func TestSettling(t *testing.T) {
	tests := map[string]struct {
		had  registration.Configuration
		want time.Duration
	}{
		"a new configuration":                     {want: calm},
		"other webhooks":                          {had: trusting(carrying("a", "x"), "another"), want: 2 * calm},
		"a policy that joins":                     {had: trusting(carrying("a", "x"), "")},
		"other webhooks, for a policy that joins": {had: trusting(carrying("a", "y"), "another"), want: 2 * calm},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1_800_000_000, 0)
			clock := clocktesting.NewFakePassiveClock(start)
			r := &Reconciler{Client: &announcing{}, Contests: NewContests(prometheus.NewRegistry()), Clock: clock, Gate: &Gate{}}
			r.begin()
			want := trusting(carrying("a", "x,z"), "")
			before := newPass(nil)
			if tt.had != nil {
				before = newPass([]registration.Configuration{tt.had})
			}
			r.unsettle(before, []registration.Configuration{want})
			if got := r.Gate.Settling("z"); got != (tt.want > 0) {
				t.Fatalf("settling %t before the write", got)
			}
			got := trusting(carrying("a", "x,z"), "")
			got.SetResourceVersion("7")
			r.remember(tt.had, want, got)
			took := time.Duration(0)
			for ; r.Gate.Settling("z") && took < time.Minute; took += time.Second {
				clock.SetTime(start.Add(took))
				p := newPass([]registration.Configuration{got})
				if err := r.announce(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				r.settled(p)
				if r.Gate.Settling("z") != (p.next > 0) {
					t.Errorf("after %s: settling %t, and the next pass is in %s", took, p.next <= 0, p.next)
				}
				if !r.Gate.Settling("z") {
					break
				}
			}
			if took != tt.want {
				t.Errorf("settled after %s, want %s", took, tt.want)
			}
		})
	}
}
