package versions

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/ostiary/ostiary/internal/policy"
)

// During an upgrade, the lowest version counts as long as it is seen.
func TestTheLowestVersionCounts(t *testing.T) {
	type step struct {
		after      time.Duration
		saw        policy.Engine // 0: the read fails
		want       policy.Engine
		wantChange bool
	}
	now := time.Now()
	var reads policy.Engine
	d := newDetector(func(context.Context) (policy.Engine, error) {
		if reads == 0 {
			return 0, errors.New("unavailable")
		}
		return reads, nil
	}, func() time.Time { return now }, logr.Discard())
	changes := d.Subscribe(t.Context())
	for i, s := range []step{
		{saw: 0, want: policy.LatestEngine},
		{saw: 36, want: 36, wantChange: true},
		{after: time.Minute, saw: 37, want: 36},
		{after: time.Minute, saw: 36, want: 36},
		{after: 9 * time.Minute, saw: 37, want: 36},
		{after: 2 * time.Minute, saw: 0, want: 36},
		{after: time.Minute, saw: 37, want: 37, wantChange: true},
		{after: time.Minute, saw: 35, want: 35, wantChange: true},
	} {
		now, reads = now.Add(s.after), s.saw
		before := d.Compiler()
		d.Check(t.Context())
		changed := false
		select {
		case <-changes:
			changed = true
		default:
		}
		if d.Engine() != s.want || changed != s.wantChange || (d.Compiler() != before) != s.wantChange {
			t.Errorf("step %d: got %s, changed %v, want %s, %v", i, d.Engine(), changed, s.want, s.wantChange)
		}
	}
}
