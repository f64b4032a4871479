package configurations

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/registration"
)

// recheckInterval is the time until the gate looks again for replicas that have
// expired. Expiry sends no notification.
const recheckInterval = time.Second

// ReplicaGate blocks a configuration until every live replica has loaded all of
// its policies: API servers may send its requests to any replica. It is safe for
// concurrent use.
type ReplicaGate struct {
	// Live returns the live replicas, in a slice that the gate may change.
	Live func(context.Context) ([]replicas.Replica, error)
	// Subscribe notifies about changes of Live.
	Subscribe func(context.Context) <-chan struct{}
	// Self is the identity of this replica, for which the gate never waits.
	Self string

	broadcaster events.Broadcaster
	mu          sync.Mutex
	waiting     map[string]string // wait reasons by policy
	propagating map[string]bool   // policies whose last write API servers may not use yet
}

// IsPropagating reports whether API servers may not yet use the last written
// configuration of a policy.
func (g *ReplicaGate) IsPropagating(policy string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.propagating[policy]
}

func (g *ReplicaGate) setPropagating(policies map[string]bool) {
	g.mu.Lock()
	changed := !maps.Equal(g.propagating, policies)
	g.propagating = policies
	g.mu.Unlock()
	if changed {
		g.broadcaster.Notify()
	}
}

// WaitReason returns why the registration of a policy waits, empty if it does not.
func (g *ReplicaGate) WaitReason(policy string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting[policy]
}

// Changes returns a channel that receives after each change of WaitReason or
// IsPropagating, until ctx ends.
func (g *ReplicaGate) Changes(ctx context.Context) <-chan struct{} {
	return g.broadcaster.Subscribe(ctx)
}

// ReplicaSnapshot is the state of the replicas during one reconcile.
type ReplicaSnapshot struct {
	versions  map[string]string // resource version to be loaded, by policy
	others    []replicas.Replica
	listError string // empty if others is known
	waiting   map[string]string
}

// Snapshot reads which replicas have loaded which policies.
func (g *ReplicaGate) Snapshot(ctx context.Context, state *policies.State) *ReplicaSnapshot {
	s := &ReplicaSnapshot{waiting: map[string]string{}}
	others, err := g.otherReplicas(ctx)
	if err != nil {
		s.listError = err.Error()
		return s
	}
	s.others = others
	s.versions = make(map[string]string, len(state.Entries))
	for _, e := range state.Entries {
		s.versions[e.Policy.Name] = e.LoadedVersion()
	}
	return s
}

// Blocks reports whether a configuration has to wait, and records the reasons
// by policy.
func (s *ReplicaSnapshot) Blocks(want registration.Configuration) bool {
	blocked := false
	for _, name := range registration.Members(want) {
		if why := s.waitReason(name); why != "" {
			s.waiting[name] = why
			blocked = true
		}
	}
	return blocked
}

// waitReason returns why a policy has to wait. One that is not loaded here is being deleted.
func (s *ReplicaSnapshot) waitReason(policy string) string {
	if s.listError != "" {
		return s.listError
	}
	version, ok := s.versions[policy]
	if !ok {
		return ""
	}
	return notReady(s.others, version)
}

func notReady(others []replicas.Replica, version string) string {
	for _, r := range others {
		if !policies.Reached(r.Policies, version) {
			return fmt.Sprintf("waiting for replica %s, which has not loaded it yet", r.Name)
		}
	}
	return ""
}

// NotReady names a live replica that has not loaded a policy's resource version,
// empty if all have. It is for changes that leave the configurations as they are:
// nothing blocks those, but they take effect only when all replicas have loaded them.
func (g *ReplicaGate) NotReady(ctx context.Context, version string) string {
	others, err := g.otherReplicas(ctx)
	if err != nil {
		return err.Error()
	}
	return notReady(others, version)
}

// Reports returns a channel that receives when a replica starts, stops or reports,
// until ctx ends.
func (g *ReplicaGate) Reports(ctx context.Context) <-chan struct{} { return g.Subscribe(ctx) }

func (g *ReplicaGate) otherReplicas(ctx context.Context) ([]replicas.Replica, error) {
	live, err := g.Live(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(live, func(r replicas.Replica) bool { return r.Name == g.Self }), nil
}

// Publish publishes the wait reasons. It returns the time until the next check, 0 if none is due.
func (g *ReplicaGate) Publish(s *ReplicaSnapshot) time.Duration {
	g.mu.Lock()
	changed := !maps.Equal(g.waiting, s.waiting)
	g.waiting = s.waiting
	g.mu.Unlock()
	if changed {
		g.broadcaster.Notify()
	}
	if len(s.waiting) > 0 {
		return recheckInterval
	}
	return 0
}
