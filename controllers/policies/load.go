package policies

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/validation"
)

// debounce is the time that the loader waits for more changes, so that a thousand
// policies need only a few loads.
const debounce = 50 * time.Millisecond

// chunkSize is the number of policies that a processor takes at once.
const chunkSize = 64

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
	Prepare func([]*v1alpha1.WebhookPolicy, []policy.ParamNeed)
	// Backends can be nil: policies with a backend are then not registered.
	Backends Backends
	// BackendRule decides which backends are registered.
	BackendRule egress.Rule
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

	cached toolscache.Store // of the informer of policies
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
		l.Existing = func(ctx context.Context) (map[string]types.UID, error) { return existing(ctx, mgr.GetAPIReader()) }
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
	for _, s := range []source.Source{
		source.Kind[client.Object](mgr.GetCache(), &v1alpha1.WebhookPolicy{}, events.SingletonHandler{After: debounce}, relevantEvents()),
		source.Kind[client.Object](mgr.GetCache(), registration.NewConfiguration(registration.PhaseMutate), events.SingletonHandler{After: debounce}),
		source.Kind[client.Object](mgr.GetCache(), registration.NewConfiguration(registration.PhaseValidate), events.SingletonHandler{After: debounce}),
		events.ChannelSource(func(context.Context) <-chan struct{} { return l.BundleChanged }, events.EnqueueSingleton),
		events.ChannelSource(l.refused, events.EnqueueSingleton),
		events.ChannelSource(l.compilerChanged, events.EnqueueSingleton),
		events.ChannelSource(l.backendsChanged, events.EnqueueSingleton),
	} {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watching for the policy loader: %w", err)
		}
	}
	return nil
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
	policies := l.policies()
	observed, err := Configurations(ctx, l.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	state := l.load(logr.FromContextOrDiscard(ctx), policies, observed)
	doubtful := l.findUnknown(state, observed)
	if l.Prepare != nil {
		l.Prepare(planned(state))
	}
	l.Store.publish(state)
	if len(doubtful) == 0 {
		return ctrl.Result{}, nil
	}
	resolved, err := l.resolveUnknown(ctx, state, doubtful)
	if err != nil {
		return ctrl.Result{}, err
	}
	l.Store.publish(resolved)
	if len(resolved.pending) > 0 {
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	return ctrl.Result{}, nil
}

// policies lists the policies in the cache. They must not be changed. A List of the
// client would copy each of them.
func (l *Loader) policies() []*v1alpha1.WebhookPolicy {
	objects := l.cached.List()
	out := make([]*v1alpha1.WebhookPolicy, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*v1alpha1.WebhookPolicy); ok {
			out = append(out, p)
		}
	}
	return out
}

func planned(state *State) (out []*v1alpha1.WebhookPolicy, params []policy.ParamNeed) {
	for _, e := range state.Entries {
		if e.Planned {
			out = append(out, e.effective().Policy)
			params = append(params, e.effective().Compiled.ParamNeeds()...)
		}
	}
	return out, params
}

// Configurations lists the webhook configurations of both kinds. They belong to the cache
// and must not be changed.
func Configurations(ctx context.Context, reader client.Reader) ([]registration.Configuration, error) {
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := reader.List(ctx, &mutating, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing mutating configurations: %w", err)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := reader.List(ctx, &validating, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing validating configurations: %w", err)
	}
	out := make([]registration.Configuration, 0, len(mutating.Items)+len(validating.Items))
	for i := range mutating.Items {
		out = append(out, &mutating.Items[i])
	}
	for i := range validating.Items {
		out = append(out, &validating.Items[i])
	}
	return out, nil
}

// load returns the state for the objects of the API server. It compiles only changed
// policies.
func (l *Loader) load(log logr.Logger, policies []*v1alpha1.WebhookPolicy, observed []registration.Configuration) *State {
	carried := membersByGroup(observed)
	inForce := sets.New[string]()
	for _, members := range carried {
		inForce.Insert(members...)
	}
	l.wantBackends(policies)
	bundles := registration.ObservedBundles(observed)
	state := &State{Entries: make(map[types.UID]*Entry, len(policies)), Version: l.version(policies)}
	byName := make(map[string]*Entry, len(policies))
	var planned []registration.Entry
	compiled := l.compileAll(log, policies)
	for i, p := range policies {
		e := l.entry(p, compiled[i], inForce.Has(p.Name), bundles)
		state.Entries[p.UID] = e
		byName[e.Policy.Name] = e
		if e.Planned {
			planned = append(planned, e.effective().prepared)
		}
	}
	epoch := l.epoch() // first, so that it is never newer than the bundle
	bundle := l.Bundle()
	state.Registrable = len(bundle) > 0
	state.input = registration.Input{Entries: planned, Endpoint: l.Endpoint, CABundle: bundle, Epoch: epoch, ExemptNamespaces: l.ExemptNamespaces,
		RefusedConditions: l.Refusals.conditions()}
	if l.Capability != nil {
		state.input.Capability = l.Capability()
	}
	state.Plan = registration.Build(state.input)
	state.View = registration.NewView(state.Plan, observed)
	state.forgetLastGood()
	l.Refusals.retain(state.Entries)
	state.groups = groups(state.Plan, carried, byName, l.Store.State())
	l.count(byName)
	return state
}

func (l *Loader) epoch() int64 {
	if l.Epoch == nil {
		return 0
	}
	return l.Epoch()
}

// compileAll returns an entry for each policy: the previous one of the same generation, or
// a new one. The first load uses all processors, since the replica answers no requests
// before.
func (l *Loader) compileAll(log logr.Logger, policies []*v1alpha1.WebhookPolicy) []*Entry {
	workers := 1
	if l.Store.State() == nil {
		workers = runtime.GOMAXPROCS(0)
	}
	out := make([]*Entry, len(policies))
	workqueue.ParallelizeUntil(context.Background(), workers, len(policies), func(i int) { out[i] = l.compiled(log, policies[i]) },
		workqueue.WithChunkSize(chunkSize))
	return out
}

// entry returns an entry with the state of the plan, which can be the compiled one.
func (l *Loader) entry(p *v1alpha1.WebhookPolicy, compiled *Entry, inForce bool, bundles registration.Bundles) *Entry {
	e := l.trust(compiled, bundles)
	changed := *e
	if e.lastGood != nil && l.Refusals.reason(e.lastGood.Policy) != "" {
		changed.lastGood = nil
	}
	// An invalid generation of an effective policy stays registered, and failurePolicy
	// decides its requests: a mistake must not disable a policy. A policy that was never
	// effective is not registered.
	changed.Planned = e.registrable && (e.Accepted() || inForce)
	if changed.lacksBundle() && changed.lastGood == nil && inForce && e.registrable {
		changed.lastGood = l.placeholder(p)
	}
	if changed.Refusal = l.refusal(p, changed.lastGood); changed.Refusal != "" || changed.lacksBundle() {
		changed.Planned = changed.lastGood != nil
	}
	changed.DelegationError = l.Refusals.conditionReason(changed.effective().prepared.Condition())
	if changed.hasSameState(e) {
		return e
	}
	out := changed // so that changed is not allocated for each policy
	return &out
}

// hasSameState reports whether two entries of one compiled policy are equal.
func (e *Entry) hasSameState(o *Entry) bool {
	return e.Planned == o.Planned && e.Refusal == o.Refusal && e.DelegationError == o.DelegationError && e.lastGood == o.lastGood
}

func (l *Loader) compiled(log logr.Logger, p *v1alpha1.WebhookPolicy) *Entry {
	if e := l.loadedEntry(p); e != nil {
		return e.withVersion(p)
	}
	e := l.compile(log, p)
	e.lastGood = l.lastGood(p)
	if state := l.Store.State(); state != nil && state.Entries[p.UID] != nil {
		e.Compiled.InheritState(state.Entries[p.UID].Compiled)
	}
	return e
}

// withVersion returns the entry with a version of the same generation, so that the cache and
// the entry do not keep two. The policy of a plugin is not the one in the cache: the loader
// completes its rules.
func (e *Entry) withVersion(p *v1alpha1.WebhookPolicy) *Entry {
	if e.Policy == p || p.Spec.Plugin != nil {
		return e
	}
	out := *e
	out.Policy, out.loadedVersion = p, e.LoadedVersion()
	return &out
}

// LoadedVersion returns the resource version in which the generation was loaded first. A
// replica that has loaded this version has the generation, whatever changed in the status
// since.
func (e *Entry) LoadedVersion() string { return cmp.Or(e.loadedVersion, e.Policy.ResourceVersion) }

func (l *Loader) loadedEntry(p *v1alpha1.WebhookPolicy) *Entry {
	state := l.Store.State()
	if state == nil {
		return nil
	}
	if e := state.Entries[p.UID]; e != nil && e.Policy.Generation == p.Generation && e.Policy.HelpURL() == p.HelpURL() && e.engine == l.Compiler().Engine() {
		return e
	}
	return nil
}

func (l *Loader) compile(log logr.Logger, p *v1alpha1.WebhookPolicy) *Entry {
	compiler := l.Compiler()
	verdict := validation.Validate(compiler, p, l.BackendRule)
	if verdict.Compiles {
		log.V(1).Info("compiled policy", "policy", p.Name, "generation", p.Generation)
	} else {
		l.Metrics.CompileFailed()
		log.Info("policy does not compile", "policy", p.Name, "generation", p.Generation, "errors", verdict.Errors.ToAggregate().Error())
	}
	prepared := registration.Prepare(verdict.Policy)
	if !verdict.Compiles {
		prepared = prepared.WithoutCondition() // the error decides every request
	}
	return &Entry{
		Policy:      verdict.Policy,
		Compiled:    verdict.Compiled,
		Errors:      verdict.Errors,
		engine:      compiler.Engine(),
		registrable: verdict.Registrable,
		prepared:    prepared,
	}
}

func (l *Loader) count(entries map[string]*Entry) {
	names := make([]string, 0, len(entries))
	validations := map[string][]string{}
	refused := 0
	for name, e := range entries {
		names = append(names, name)
		if named := e.effective().Policy.Spec.ValidationNames(); len(named) > 0 {
			validations[name] = named
		}
		if !e.Accepted() || e.Refusal != "" {
			refused++
		}
	}
	slices.Sort(names)
	l.Metrics.Keep(names, refused)
	l.Metrics.KeepValidations(validations)
}

// groups returns the planned members, and those that the observed configurations still
// name: while a policy moves to another group, both contain it. Groups whose policies did
// not change are those of the previous state, which may be nil.
func groups(plan registration.Plan, carried map[registration.GroupKey][]string, byName map[string]*Entry, previous *State) map[registration.GroupKey]*policy.Group {
	var unchanged map[registration.GroupKey]*policy.Group
	if previous != nil {
		unchanged = previous.groups
	}
	out := make(map[registration.GroupKey]*policy.Group, len(plan.Groups))
	add := func(group registration.GroupKey, names []string) {
		compiled := make([]*policy.Compiled, 0, len(names))
		for _, name := range names {
			if e := byName[name]; e != nil {
				compiled = append(compiled, e.effective().Compiled)
			}
		}
		switch g := unchanged[group]; {
		case g.MadeOf(compiled):
			out[group] = g
		case group.OfTemplates():
			out[group] = policy.NewTemplateGroup(compiled)
		default:
			out[group] = policy.NewGroup(compiled)
		}
	}
	inPlan := sets.New[registration.GroupKey]()
	for i := range plan.Groups {
		inPlan.Insert(plan.Groups[i].Key())
	}
	for group, names := range carried {
		if !inPlan.Has(group) {
			add(group, names)
		}
	}
	for i := range plan.Groups {
		group := plan.Groups[i].Key()
		add(group, union(plan.Groups[i].Members, carried[group]))
	}
	return out
}

func membersByGroup(observed []registration.Configuration) map[registration.GroupKey][]string {
	out := make(map[registration.GroupKey][]string, len(observed))
	for _, config := range observed {
		if group, ok := registration.GroupOf(config); ok {
			out[group] = registration.Members(config)
		}
	}
	return out
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
