package configurations

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// recheckInterval is the time until the gate looks again for replicas that have
// expired. Expiry sends no notification.
const recheckInterval = time.Second

// ReplicaGate blocks a configuration until every live replica has loaded all of
// its policies: API servers may send its requests to any replica. It is safe for
// concurrent use.
type ReplicaGate struct {
	// Live returns the live replicas.
	Live func(context.Context) ([]replicas.Replica, error)
	// Subscribe notifies about changes of Live.
	Subscribe func(context.Context) <-chan struct{}
	// Self is the identity of this replica, for which the gate never waits.
	Self string
	// Version is that of this replica.
	Version versionskew.Version

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
	entries   map[string]*policies.Entry // by policy
	peers     versionskew.Peers
	listError string // empty if peers is known
	waiting   map[string]string
}

// Snapshot reads which replicas have loaded which policies.
func (g *ReplicaGate) Snapshot(ctx context.Context, state *policies.State) *ReplicaSnapshot {
	s := &ReplicaSnapshot{waiting: map[string]string{}}
	peers, err := g.peers(ctx)
	if err != nil {
		s.listError = err.Error()
		return s
	}
	s.peers = peers
	s.entries = make(map[string]*policies.Entry, len(state.Entries))
	for _, e := range state.Entries {
		s.entries[e.Policy.Name] = e
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
	e := s.entries[policy]
	if e == nil {
		return ""
	}
	if e.Skew != "" && e.IsPlaceholder() {
		return e.Skew // the configuration is that of a generation which this replica does not know
	}
	return s.peers.Missing(e.Requirement())
}

// NotReady names a live replica that cannot answer for a policy yet, empty if all can.
// It is for changes that leave the configurations as they are: nothing blocks those,
// but they take effect only when all replicas have loaded them.
func (g *ReplicaGate) NotReady(ctx context.Context, e *policies.Entry) string {
	peers, err := g.peers(ctx)
	if err != nil {
		return err.Error()
	}
	return peers.Missing(e.Requirement())
}

// Reports returns a channel that receives when a replica starts, stops or reports,
// until ctx ends.
func (g *ReplicaGate) Reports(ctx context.Context) <-chan struct{} { return g.Subscribe(ctx) }

func (g *ReplicaGate) peers(ctx context.Context) (versionskew.Peers, error) {
	live, err := g.Live(ctx)
	if err != nil {
		return versionskew.Peers{}, err
	}
	return replicas.Peers(live, g.Self, g.Version), nil
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
