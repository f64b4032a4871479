package policies

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// debounce is the time that the loader waits for more changes, so that a thousand
// policies need only a few loads.
const debounce = 50 * time.Millisecond

// Loader loads the policies of the API server into the store. It runs on every replica.
type Loader struct {
	Client client.Reader
	Store  *Store
	// Compiler returns the compiler for the versions of the API servers. After
	// CompilerChanged, it is another one. CompilerChanged may be nil.
	Compiler         func() *policy.Compiler
	CompilerChanged  func(context.Context) <-chan struct{}
	Metrics          *metrics.Policies
	Endpoint         registration.Endpoint
	ExemptNamespaces []string
	// Prepare gets the policies that are or can be registered, before requests use them,
	// and provides their dependencies. It must not change the policies. Nil is allowed.
	Prepare func([]*v1alpha1.WebhookPolicy, Needs)
	// Backends can be nil: policies with a backend are then not registered.
	Backends Backends
	// BackendRule decides which backends are registered.
	BackendRule egress.Rule
	// Version is that of this replica.
	Version versionskew.Version
	// Peers returns the other live replicas, and an error until they are known. Nil means none.
	Peers func(context.Context) (versionskew.Peers, error)
	// ReportsChanged notifies about changes of Peers. It may be nil.
	ReportsChanged func(context.Context) <-chan struct{}
	// Refusals are omitted from the plan; nil means none.
	Refusals *Refusals
	// Existing returns the UIDs of all policies in the API server, by name. By default it
	// does not use the cache.
	Existing func(context.Context) (map[string]types.UID, error)
	// Bundle returns the current trust bundle, nil if there is none.
	Bundle func() []byte
	// Epoch returns the epoch of the bundle or of an earlier one; nil means none.
	Epoch func() int64
	// Capability returns the secret first segment of the paths that API servers call; nil
	// means none.
	Capability func() string
	// BundleChanged receives after each change of the bundle or the capability.
	BundleChanged <-chan struct{}

	cached    toolscache.Store   // of the informer of policies
	notLoaded events.Broadcaster // notifies if a report finds that a policy is not loaded
}

// Needs are what policies read besides requests.
type Needs struct {
	Params  []policy.ParamNeed
	Lookups []*lookups.Program
}

// SetupWithManager adds the loader to a manager. All events lead to one request, which
// loads all changes.
func (l *Loader) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.New("policies", mgr, controller.Options{
		Reconciler:         l,
		LogConstructor:     events.Log(mgr.GetLogger().WithName("policies")),
		NeedLeaderElection: ptr.To(false),
	})
	if err != nil {
		return fmt.Errorf("making the policy loader: %w", err)
	}
	if l.Existing == nil {
		l.Existing = func(ctx context.Context) (map[string]types.UID, error) {
			return existingPolicies(ctx, mgr.GetAPIReader())
		}
	}
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.WebhookPolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	shared, ok := informer.(toolscache.SharedInformer)
	if !ok {
		return fmt.Errorf("watching policies: the cache has a %T without a store", informer)
	}
	l.cached = shared.GetStore()
	for _, s := range l.sources(mgr.GetCache()) {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watching for the policy loader: %w", err)
		}
	}
	return nil
}

// sources returns what makes the loader load again.
func (l *Loader) sources(objects cache.Cache) []source.Source {
	mutating := registration.NewConfiguration(registration.PhaseMutate)
	validating := registration.NewConfiguration(registration.PhaseValidate)
	debounced := events.SingletonHandler{After: debounce}
	bundleChanged := func(context.Context) <-chan struct{} { return l.BundleChanged }
	return []source.Source{
		source.Kind[client.Object](objects, &v1alpha1.WebhookPolicy{}, debounced, relevantEvents()),
		source.Kind[client.Object](objects, mutating, debounced),
		source.Kind[client.Object](objects, validating, debounced),
		events.ChannelSource(bundleChanged, events.EnqueueSingleton),
		events.ChannelSource(l.refused, events.EnqueueSingleton),
		events.ChannelSource(l.compilerChanged, events.EnqueueSingleton),
		events.ChannelSource(l.backendsChanged, events.EnqueueSingleton),
		events.ChannelSource(l.peersChanged, events.EnqueueSingleton),
		events.ChannelSource(l.notLoaded.Subscribe, events.EnqueueSingleton),
	}
}

func (l *Loader) refused(ctx context.Context) <-chan struct{} {
	if l.Refusals == nil {
		return nil
	}
	return l.Refusals.listeners.Subscribe(ctx)
}

func (l *Loader) compilerChanged(ctx context.Context) <-chan struct{} {
	if l.CompilerChanged == nil {
		return nil
	}
	return l.CompilerChanged(ctx)
}

// Reconcile loads the policies.
func (l *Loader) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	seen, err := l.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	entries := l.decide(logr.FromContextOrDiscard(ctx), seen)
	return l.publish(ctx, l.plan(seen, entries))
}

// decide compiles the generations that are new, and returns the state of each policy.
func (l *Loader) decide(log logr.Logger, seen *observation) map[types.UID]*Entry {
	named := seen.named()
	latest := l.generations(log, seen)
	entries := make(map[types.UID]*Entry, len(latest))
	for i, p := range seen.policies {
		entries[p.UID] = l.entry(seen, l.withBundle(latest[i], seen.bundles), named.Has(p.Name), seen.skew(p))
	}
	return entries
}

// entry returns the previous entry if nothing has changed.
func (l *Loader) entry(seen *observation, latest *Generation, named bool, skew string) *Entry {
	before := seen.entryBefore(latest.Policy)
	facts := Facts{
		Named:             named,
		Skew:              skew,
		Refusals:          seen.refusals.texts[latest.Policy.UID],
		RefusedConditions: seen.refusals.reasons,
	}
	if before != nil && before.Compiled != latest.Compiled { // Decide needs it for no other, and there are thousands
		_, facts.Registered, _ = seen.previous.Registered(before)
	}
	standing := Decide(before, latest, facts)
	if standing.Choice == ChoosePlaceholder && standing.previous == nil {
		standing.previous = placeholder(seen.compiler, latest.Policy)
	}
	if before != nil && before.Generation == latest && before.Standing == standing {
		return before
	}
	return &Entry{Generation: latest, Standing: standing}
}

// publish makes requests use a state, and repeats it when it is known which of the unknown
// policies exist.
func (l *Loader) publish(ctx context.Context, state *State) (ctrl.Result, error) {
	l.Refusals.retain(state.Entries)
	l.count(state)
	l.prepare(state)
	l.Store.publish(state)
	if len(state.unknown) == 0 {
		return ctrl.Result{RequeueAfter: state.peerInterval()}, nil
	}
	resolved, err := l.resolveUnknown(ctx, state)
	if err != nil {
		return ctrl.Result{}, err
	}
	l.Store.publish(resolved)
	if len(resolved.pending) > 0 {
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	return ctrl.Result{RequeueAfter: state.peerInterval()}, nil
}
