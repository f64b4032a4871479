package configurations

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/internal/registration"
)

// A policy is propagated when API servers have had time to compile the last write
// that changes their calls, which may be a touch.
func TestPropagation(t *testing.T) {
	tests := map[string]struct {
		had  registration.Configuration
		want time.Duration
	}{
		"a new configuration":                     {want: debounce},
		"other webhooks":                          {had: withBundle(newConfiguration("a", "x"), "another"), want: 2 * debounce},
		"a policy that joins":                     {had: withBundle(newConfiguration("a", "x"), "")},
		"other webhooks, for a policy that joins": {had: withBundle(newConfiguration("a", "y"), "another"), want: 2 * debounce},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1_800_000_000, 0)
			clock := clocktesting.NewFakePassiveClock(start)
			leading := newTestTerm(&touchClient{}, clock)
			start = start.Add(time.Minute)
			clock.SetTime(start)
			want := withBundle(newConfiguration("a", "x,z"), "")
			before := newPass(nil)
			if tt.had != nil {
				before = newPass([]registration.Configuration{tt.had})
			}
			leading.startPropagation(before, []registration.Configuration{want})
			if got := leading.Gate.IsPropagating("z"); got != (tt.want > 0) {
				t.Fatalf("propagating %t before the write", got)
			}
			got := withBundle(newConfiguration("a", "x,z"), "")
			got.SetResourceVersion("7")
			leading.recordWrite(tt.had, want, got)
			took := time.Duration(0)
			for ; leading.Gate.IsPropagating("z") && took < time.Minute; took += time.Second {
				clock.SetTime(start.Add(took))
				p := newPass([]registration.Configuration{got})
				if err := leading.touch(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				leading.finishPropagation(p)
				if leading.Gate.IsPropagating("z") != (p.requeueAfter > 0) {
					t.Errorf("after %s: propagating %t, and the next pass is in %s", took, p.requeueAfter <= 0, p.requeueAfter)
				}
				if !leading.Gate.IsPropagating("z") {
					break
				}
			}
			if took != tt.want {
				t.Errorf("propagated after %s, want %s", took, tt.want)
			}
		})
	}
}
