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

// writing is a client that can do nothing but apply.
type writing struct {
	client.Client
	apply func(name string) error
}

func (w writing) Apply(_ context.Context, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	return w.apply(config.(interface{ GetName() string }).GetName())
}

// each has n configurations written, of a policy each, that exist already.
func each(t *testing.T, n int, apply func(name string) error) (*Reconciler, func() error) {
	t.Helper()
	r := &Reconciler{
		Client: writing{apply: apply}, Contests: NewContests(prometheus.NewRegistry()), Clock: clock.RealClock{},
	}
	r.begin()
	var changes registration.Changes
	for i := range n {
		name := fmt.Sprintf("c-%d", i)
		changes.Apply = append(changes.Apply, carrying(name, name))
	}
	return r, func() error {
		p := newPass(changes.Apply)
		p.gate = &opening{}
		return r.write(t.Context(), p, changes)
	}
}

// What is wrong in many configurations is not put right in one after the other.
func TestSeveralAreWrittenAtATime(t *testing.T) {
	var under atomic.Int32
	all := make(chan struct{})
	r, write := each(t, 3*writers, func(name string) error {
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
	if len(r.written) != 3*writers || len(r.applied) != 3*writers {
		t.Errorf("%d written and %d applied, want %d", len(r.written), len(r.applied), 3*writers)
	}
}

// A configuration that cannot be written keeps no other from it, and is not
// contested by anybody.
func TestFailedWrites(t *testing.T) {
	failing := errors.New("storage is full")
	broken := false
	r, write := each(t, 3, func(name string) error {
		if broken && name == "c-0" {
			return failing
		}
		return nil
	})
	if err := write(); err != nil {
		t.Fatal(err)
	}
	broken = true
	for range 2 * patience {
		clear(r.written)
		if err := write(); !errors.Is(err, failing) {
			t.Fatalf("error %v, want that of the write", err)
		}
		if len(r.written) != 2 {
			t.Fatalf("%d of the other two are written", len(r.written))
		}
		// Nobody changes the others.
		delete(r.applied, key{registration.PhaseValidate, "c-1"})
		delete(r.applied, key{registration.PhaseValidate, "c-2"})
	}
	if got := r.Contests.Contested(); len(got) > 0 {
		t.Errorf("contested: %v", got)
	}
	broken = false
	clear(r.written)
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if len(r.written) != 3 {
		t.Errorf("%d are written when all can be, want 3", len(r.written))
	}
}
