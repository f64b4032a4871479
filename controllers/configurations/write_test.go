package configurations

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// applyClient is a client that can only apply.
type applyClient struct {
	client.Client
	apply func(name string) error
}

func (w applyClient) Apply(_ context.Context, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	return w.apply(config.(interface{ GetName() string }).GetName())
}

// newTestTerm returns a term of the only replica that begins now.
func newTestTerm(api client.Client, now clock.PassiveClock) *term {
	conflicts := NewConflictTracker(prometheus.NewRegistry())
	return newTerm(Dependencies{Client: api, Conflicts: conflicts, Clock: now, Gate: &ReplicaGate{}})
}

// newWriteFixture returns a function that writes n existing configurations with one policy each.
func newWriteFixture(t *testing.T, n int, apply func(name string) error) (*term, func() error) {
	t.Helper()
	leading := newTestTerm(applyClient{apply: apply}, clock.RealClock{})
	var changes registration.Changes
	for i := range n {
		name := fmt.Sprintf("c-%d", i)
		changes.Apply = append(changes.Apply, newConfiguration(name, name))
	}
	return leading, func() error {
		p := newPass(changes.Apply)
		p.gate = &ReplicaSnapshot{}
		return leading.write(t.Context(), p, changes)
	}
}

// Drifted configurations are repaired in parallel.
func TestParallelWrites(t *testing.T) {
	var under atomic.Int32
	all := make(chan struct{})
	leading, write := newWriteFixture(t, 3*writers, func(name string) error {
		if under.Add(1) == writers {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-time.After(time.Minute):
			return fmt.Errorf("%s is written alone", name)
		}
	})
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if len(leading.written) != 3*writers || len(leading.applied) != 3*writers {
		t.Errorf("%d written and %d applied, want %d", len(leading.written), len(leading.applied), 3*writers)
	}
}

// A failed write does not prevent the others, and is not a conflict.
func TestFailedWrites(t *testing.T) {
	failing := errors.New("storage is full")
	broken := false
	leading, write := newWriteFixture(t, 3, func(name string) error {
		if broken && name == "c-0" {
			return failing
		}
		return nil
	})
	if err := write(); err != nil {
		t.Fatal(err)
	}
	broken = true
	for range 2 * conflictThreshold {
		clear(leading.written)
		if err := write(); !errors.Is(err, failing) {
			t.Fatalf("error %v, want that of the write", err)
		}
		if len(leading.written) != 2 {
			t.Fatalf("%d of the other two are written", len(leading.written))
		}
		// No other client changes these two.
		delete(leading.applied, registration.Key{Phase: registration.PhaseValidate, Name: "c-1"})
		delete(leading.applied, registration.Key{Phase: registration.PhaseValidate, Name: "c-2"})
	}
	if got := leading.Conflicts.OtherManagers(); len(got) > 0 {
		t.Errorf("contested: %v", got)
	}
	broken = false
	clear(leading.written)
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if len(leading.written) != 3 {
		t.Errorf("%d are written when all can be, want 3", len(leading.written))
	}
}
