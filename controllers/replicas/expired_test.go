package replicas

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// renewing is a Reporter with a fake clock and a fake API server.
type renewing struct {
	*Reporter
	clock  time.Duration
	takes  time.Duration // duration of a write
	write  error
	behind error // the result of Current
	asked  int
}

func newRenewing() *renewing {
	r := &renewing{}
	client := fake.NewClientset()
	client.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.clock += r.takes
		return true, &coordinationv1.Lease{}, r.write
	})
	r.Reporter = NewReporter(Options{
		Lease:  NewLease(),
		Client: client, Namespace: "ns", Identity: "a", Log: logr.Discard(),
		Report: func(context.Context) Report { return Report{} },
		Current: func(context.Context) error {
			r.asked++
			return r.behind
		},
	})
	r.now = func() time.Duration { return r.clock }
	return r
}

// TestExpired checks that a replica answers while others wait for it, and after that
// only when it has loaded all later changes.
func TestExpired(t *testing.T) {
	gone, old := errors.New("connection refused"), errors.New("generation 2 of policy p has not been loaded yet")
	full := errors.New("rpc error: " + noSpace)
	type step struct {
		after       time.Duration
		renew       bool
		takes       time.Duration
		write       error
		behind      error
		wantExpired bool
		wantAsked   bool
		wantNext    time.Duration
	}
	first := step{renew: true, wantAsked: true, wantNext: 4 * time.Second}
	tests := map[string][]step{
		"before the first renewal": {{wantExpired: true}},
		"renewed":                  {first, {after: 43 * time.Second}},
		"no longer renewed":        {first, {after: 44 * time.Second, wantExpired: true}},
		"started with outdated policies": {
			{renew: true, behind: old, wantExpired: true, wantAsked: true, wantNext: 200 * time.Millisecond}, first},
		"renewed in time": {
			first, {after: 4 * time.Second, renew: true, wantNext: 4 * time.Second}, {after: 43 * time.Second},
		},
		"counts from before the write": {
			first, {after: 4 * time.Second, renew: true, takes: 3 * time.Second, wantNext: 4 * time.Second},
			{after: 41 * time.Second, wantExpired: true},
		},
		"one failed write": {first, {after: 4 * time.Second, renew: true, write: gone, wantNext: time.Second}},
		"renewed after expiry": {
			first, {after: time.Minute, wantExpired: true}, {renew: true, wantAsked: true, wantNext: 4 * time.Second},
		},
		"frequent retries after expiry": {
			first, {after: time.Minute, renew: true, write: gone, wantExpired: true, wantNext: 200 * time.Millisecond},
		},
		"renewed after expiry with outdated policies": {first,
			{after: time.Minute, renew: true, behind: old, wantExpired: true, wantAsked: true, wantNext: 200 * time.Millisecond},
			{after: time.Second, renew: true, wantAsked: true, wantNext: 4 * time.Second}},
		"late, so that others may have stopped waiting": {first,
			{after: 28 * time.Second, renew: true, takes: 3 * time.Second, behind: old, wantAsked: true, wantNext: time.Second},
			{after: 13 * time.Second, wantExpired: true}},
		"etcd quota exhausted": {first,
			{after: 43 * time.Second, renew: true, write: full, wantAsked: true, wantNext: 4 * time.Second},
			{after: 43 * time.Second, renew: true, write: full, wantAsked: true, wantNext: 4 * time.Second},
			{after: 43 * time.Second, renew: true, write: full, behind: old, wantAsked: true, wantNext: 4 * time.Second},
			{after: time.Second, wantExpired: true}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRenewing()
			for i, s := range steps {
				r.clock += s.after
				if s.renew {
					r.takes, r.write, r.behind, r.asked = s.takes, s.write, s.behind, 0
					if next := r.renew(t.Context()); next != s.wantNext || r.asked > 0 != s.wantAsked {
						t.Errorf("step %d: next in %s, asked %d times, want %s, %t", i, next, r.asked, s.wantNext, s.wantAsked)
					}
				}
				if got := r.Expired(); got != s.wantExpired {
					t.Errorf("step %d: expired %t, want %t", i, got, s.wantExpired)
				}
			}
			if r.timing.expired >= r.timing.duration || r.timing.unready >= r.timing.expired {
				t.Errorf("timing %+v: others may stop waiting before the replica stops answering", r.timing)
			}
		})
	}
}

func TestClock(t *testing.T) {
	now := newClock()
	before := now()
	time.Sleep(time.Millisecond)
	if after := now(); after <= before {
		t.Errorf("%s after %s", after, before)
	}
	if n := testing.AllocsPerRun(100, func() { now() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
