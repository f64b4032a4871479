package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/controllers/internal/events"
)

const (
	// maxDuration is the longest duration of a Lease.
	maxDuration = 5 * time.Minute
	// deleteAfter is how long after its expiry a Lease is deleted, and sweepInterval the
	// interval of the checks.
	deleteAfter   = 10 * time.Minute
	sweepInterval = time.Minute
)

// Replica is a running replica.
type Replica struct {
	// Name is its identity.
	Name string
	Report
	// Violations has counts of violations in the replica's own encoding; "" without any.
	Violations string
	// ExceptionUses has counts of uses of exceptions in the replica's own encoding; "" without any.
	ExceptionUses string
	// RolloutCounts has counts of violations in steps of rollouts in the replica's own encoding; "" without any.
	RolloutCounts string
}

// Registry watches the Leases of all replicas. Every replica runs one, so that the
// next leader has already observed them for a while.
type Registry struct {
	client    kubernetes.Interface
	namespace string
	log       logr.Logger
	listeners events.Broadcaster
	now       func() time.Time // with its monotonic part

	mu     sync.Mutex
	seen   map[string]observedLease // by name of the Lease
	synced func() bool
}

// observedLease is a Lease and when this process last observed a change of it. The times in
// the Lease are from another machine's clock and are ignored.
type observedLease struct {
	uid      types.UID
	version  string
	replica  Replica
	at       time.Time
	duration time.Duration
}

func (s observedLease) expired(now time.Time) time.Duration { return now.Sub(s.at) - s.duration }

// NewRegistry returns a Registry that has not started.
func NewRegistry(client kubernetes.Interface, namespace string, log logr.Logger) *Registry {
	return &Registry{client: client, namespace: namespace, log: log, now: time.Now, seen: map[string]observedLease{}}
}

// NeedLeaderElection returns false: every replica watches.
func (g *Registry) NeedLeaderElection() bool { return false }

// Start watches the Leases until ctx ends.
func (g *Registry) Start(ctx context.Context) error {
	informer := coordinationinformers.NewFilteredLeaseInformer(g.client, g.namespace, 0, nil, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.SelectorFromSet(leaseLabels()).String()
	})
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		g.log.Error(err, "watching the replicas' Leases failed, retrying", "namespace", g.namespace)
	}); err != nil {
		return fmt.Errorf("watching Leases in %s: %w", g.namespace, err)
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    g.observe,
		UpdateFunc: func(_, obj any) { g.observe(obj) },
		DeleteFunc: g.forget,
	})
	if err != nil {
		return fmt.Errorf("watching Leases in %s: %w", g.namespace, err)
	}
	g.mu.Lock()
	g.synced = registered.HasSynced
	g.mu.Unlock()
	informer.RunWithContext(ctx)
	return nil
}

func (g *Registry) observe(obj any) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return
	}
	report, err := reportOf(lease.Annotations)
	if err != nil {
		g.log.Error(err, "a replica's Lease is invalid", "lease", lease.Name)
	}
	g.mu.Lock()
	before, known := g.seen[lease.Name]
	if known && before.version == lease.ResourceVersion {
		g.mu.Unlock()
		return // listed again
	}
	now := observedLease{
		uid:     lease.UID,
		version: lease.ResourceVersion,
		replica: Replica{
			Name:       cmp.Or(ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Name),
			Report:     report,
			Violations: lease.Annotations[annotationViolations],

			ExceptionUses: lease.Annotations[annotationExceptionUses],
			RolloutCounts: lease.Annotations[annotationRolloutCounts],
		},
		at:       g.now(),
		duration: min(maxDuration, max(0, time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second)),
	}
	g.seen[lease.Name] = now
	g.mu.Unlock()
	if !known || before.replica.Name != now.replica.Name || before.replica.Report != now.replica.Report || before.expired(now.at) > 0 {
		g.listeners.Notify()
	}
}

func (g *Registry) forget(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		g.mu.Lock()
		delete(g.seen, lease.Name)
		g.mu.Unlock()
		g.listeners.Notify()
	}
}

// Live returns the replicas whose Lease has not expired, sorted by name. Subscribe
// does not report the expiry of a Lease: call Live periodically.
func (g *Registry) Live(context.Context) ([]Replica, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.synced == nil || !g.synced() {
		return nil, errors.New("the replicas' Leases have not been read yet")
	}
	now := g.now()
	var out []Replica
	for _, s := range g.seen {
		if s.expired(now) <= 0 {
			out = append(out, s.replica)
		}
	}
	slices.SortFunc(out, func(a, b Replica) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Subscribe returns a channel that receives when a replica starts, deletes its Lease or
// changes its report, until ctx ends.
func (g *Registry) Subscribe(ctx context.Context) <-chan struct{} { return g.listeners.Subscribe(ctx) }

// Sweep deletes the Leases of crashed replicas that no Pod owns, until ctx ends. Only
// the leader runs it.
func (g *Registry) Sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			g.sweep(ctx)
		}
	}
}

func (g *Registry) sweep(ctx context.Context) {
	for name, s := range g.abandoned() {
		err := g.client.CoordinationV1().Leases(g.namespace).Delete(ctx, name, metav1.DeleteOptions{
			// A Lease that has been renewed meanwhile remains.
			Preconditions: &metav1.Preconditions{UID: &s.uid, ResourceVersion: &s.version},
		})
		if err != nil && ctx.Err() == nil {
			g.log.Info("deleting the expired Lease of a replica failed", "lease", name, "reason", err.Error())
		}
	}
}

func (g *Registry) abandoned() map[string]observedLease {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, out := g.now(), map[string]observedLease{}
	for name, s := range g.seen {
		if s.expired(now) > deleteAfter {
			out[name] = s
		}
	}
	return out
}
