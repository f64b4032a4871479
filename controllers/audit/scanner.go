// Package audit evaluates policies on the stored objects of the cluster, and reports the
// results. Only the leader runs it.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	// AggregationLabel is the label, with the value "true", of ClusterRoles that are
	// aggregated into the role for reading audited objects.
	AggregationLabel = "admission.ostiary.dev/aggregate-to-audit"
	// account is the ServiceAccount that Ostiary impersonates to read audited objects. Its
	// role limits what is read, and a FlowSchema gives its requests a low priority.
	account = "ostiary-audit"

	// pollInterval is the interval between looks for changed params and, at least, between two
	// reports of changed results, which are looked for in lookInterval.
	pollInterval = 10 * time.Second
	lookInterval = time.Second
	// retryInterval is the time after which a failed scan of a resource is repeated.
	retryInterval = 30 * time.Second
	// servedInterval is the interval between attempts to find the kinds of reports.
	servedInterval = 5 * time.Minute
)

// Params finds the objects that policies read.
type Params interface {
	State(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) (synced bool, problem string)
	Version(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) uint64
	Subscribe(ctx context.Context) <-chan struct{}
}

// Exceptions find what exceptions have an effect.
type Exceptions interface {
	// Versions returns for each policy with exceptions a number that differs if others have an
	// effect at a time.
	Versions(now time.Time) map[string]uint64
	Subscribe(ctx context.Context) <-chan struct{}
}

// Resources finds the resources of the API server.
type Resources interface {
	Served() audit.Served
	Refresh()
	Subscribe(ctx context.Context) <-chan struct{}
}

// Options configures a Scanner.
type Options struct {
	Config *rest.Config
	// Namespace is Ostiary's namespace.
	Namespace string
	Store     *policies.Store
	Params    Params
	Resources Resources
	// Exceptions are those of the environment of the Store; nil without any.
	Exceptions Exceptions
	// Lookups are those of the environment of the Store; nil without any.
	Lookups Lookups
	// Requests returns the violations by requests to all replicas.
	Requests func(context.Context) ([]violations.Finding, error)
	// Native evaluates native policies, too; nil is allowed.
	Native *Native
	// ExemptNamespaces are those besides Kubernetes' own.
	ExemptNamespaces []string
	// Interval is the time between two scans of everything.
	Interval time.Duration
	// Lines is the maximum number of objects to describe for each policy and namespace.
	Lines      int
	Log        logr.Logger
	Registerer prometheus.Registerer
}

// Scanner evaluates policies on stored objects. Its methods besides Run are safe for
// concurrent use.
type Scanner struct {
	options  Options
	reader   objects.Reader
	metadata metadata.Interface
	client   kubernetes.Interface // for native policies; nil without them
	// Clients for reports, with the permissions of Ostiary.
	reports        dynamic.Interface
	reportMetadata metadata.Interface

	budget    *budget
	metrics   *metrics
	listeners events.Broadcaster
	changed   *changedObjects
	host      policy.Environment
	exempt    []string // namespaces

	// summaries are those of the policies by name; nil while this replica does not lead.
	summaries atomic.Pointer[map[string]results.Summary]

	served time.Time // the last look for the kinds of reports, of the goroutine that publishes

	// Of the goroutine that runs.
	lookedUp       map[string]lookedUp // by policy
	watches        map[schema.GroupVersionResource]resourceWatch
	pages          map[schema.GroupVersionResource]int64 // objects in a page, if they are fewer
	nativePolicies *nativePolicies
}

// New returns a Scanner that reads with the permissions of the ServiceAccount
// ostiary-audit.
func New(o Options) (*Scanner, error) {
	config := rest.CopyConfig(o.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: serviceaccount.MakeUsername(o.Namespace, account)}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1                           // the budget limits requests
	config.DisableCompression = true          // compressing a page delays other requests
	config.WarningHandler = rest.NoWarnings{} // about versions that policies name
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the audit: %w", err)
	}
	watches, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the audit: %w", err)
	}
	var native kubernetes.Interface
	if o.Native != nil {
		if native, err = kubernetes.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("making a client for native policies: %w", err)
		}
	}
	reports, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client for reports: %w", err)
	}
	reportMetadata, err := metadata.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client for reports: %w", err)
	}
	s := &Scanner{
		options:        o,
		metadata:       watches,
		client:         native,
		reports:        reports,
		reportMetadata: reportMetadata,
		budget:         newBudget(),
		metrics:        newMetrics(o.Registerer),
		watches:        map[schema.GroupVersionResource]resourceWatch{},
		changed:        newChangedObjects(),
	}
	s.reader = objects.Reader{Client: client, Wait: s.budget.request}
	s.exempt = guard.ExemptNamespaces(o.ExemptNamespaces)
	s.host = o.Store.Host
	s.host.Observe, s.host.Failed, s.host.Excepted, s.host.Recheck, s.host.BreakGlass = nil, nil, nil, nil, false
	return s, nil
}

// Subscribe returns a channel that receives after each change of a Summary, until ctx ends.
func (s *Scanner) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// Run scans until ctx ends.
func (s *Scanner) Run(ctx context.Context) error {
	table := results.NewTable(s.options.Lines)
	s.pages = map[schema.GroupVersionResource]int64{}
	s.lookedUp = nil
	defer func() {
		s.metrics.reset()
		s.stopWatches(nil)
	}()
	if s.nativePolicies = nil; s.options.Native != nil {
		s.nativePolicies = newNativePolicies(ctx, s.options.Native, s.client, s.host)
	}
	sources := []func(context.Context) <-chan struct{}{s.options.Store.Subscribe, s.options.Params.Subscribe, s.options.Resources.Subscribe}
	if s.options.Exceptions != nil {
		sources = append(sources, s.options.Exceptions.Subscribe)
	}
	changes := events.Merge(ctx, append(sources, s.nativePolicies.subscriptions()...)...)
	published := make(chan struct{})
	go func() {
		defer close(published)
		s.publish(ctx, table)
	}()
	defer func() { <-published }()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		start := time.Now()
		planned, problems, isKnown := s.plan()
		table.Set(planned.versions())
		if isKnown {
			table.SetProblems(problems)
		}
		s.stopWatches(table)
		if s.budget.spend(ctx, time.Since(start)) != nil {
			return nil
		}
		if pass := table.Next(time.Now(), s.options.Interval); pass != nil {
			s.scan(ctx, table, planned, newScan(pass, planned[pass.GVR()]))
			if s.rereadNext(ctx, table, planned) == nil && ctx.Err() == nil {
				continue
			}
		}
		if s.rereadUntil(ctx, table, planned, changes, poll.C) != nil {
			return nil
		}
	}
}

// publish reports changed results, at most once in pollInterval. Reports wait for the first
// scan of everything: those of an earlier leader are better than incomplete ones.
func (s *Scanner) publish(ctx context.Context, table *results.Table) {
	defer s.summaries.Store(nil)
	w := &reporter{client: s.reports, metadata: s.reportMetadata, wait: s.budget.request, log: s.options.Log}
	var found requests
	var snapshot results.Snapshot
	pending := true
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Sub(last) < pollInterval {
				continue
			}
			if table.TakeChanged() {
				last, pending = now, true
				snapshot = table.Snapshot().After(snapshot)
				s.summarize(snapshot)
			}
			pending = found.refresh(ctx, s.options.Requests, now) || pending
			if pending && snapshot.IsComplete && s.servesReports(now) {
				last = now
				pending = !w.write(ctx, slices.Concat(snapshot.Reports(), found.reports()), now)
			}
		}
	}
}

// summarize publishes the numbers of a snapshot.
func (s *Scanner) summarize(snapshot results.Snapshot) {
	summaries := snapshot.Summaries()
	s.summaries.Store(&summaries)
	s.metrics.set(snapshot)
	s.listeners.Notify()
}

// Summary returns the last result of a policy, which can be that of an earlier generation. It is the
// zero value while none is known.
func (s *Scanner) Summary(policy string) results.Summary {
	known := s.summaries.Load()
	if known == nil {
		return results.Summary{}
	}
	return (*known)[policy]
}

// servesReports reports whether the API server has the kinds of reports. If not, it looks
// for them again later.
func (s *Scanner) servesReports(now time.Time) bool {
	if len(s.options.Resources.Served()[namespacedReports().GroupVersion()]) > 0 {
		return true
	}
	if now.Sub(s.served) >= servedInterval {
		s.served = now
		s.options.Resources.Refresh()
	}
	return false
}

// plan returns the resources of all policies, and why some are not evaluated; isKnown is false while
// the policies are not known.
func (s *Scanner) plan() (resources plan, problems map[string]results.Problem, isKnown bool) {
	p := &planner{api: s.options.Resources.Served(), resources: plan{}, problems: map[string]results.Problem{}}
	state := s.options.Store.State()
	if state == nil || p.api == nil || !s.nativePolicies.ready() {
		return nil, nil, false
	}
	exceptions := s.exceptionVersions()
	before := s.lookedUp
	s.lookedUp = map[string]lookedUp{}
	for _, e := range state.Entries {
		of, compiled := e.Effective()
		if !e.Accepted() || !e.Planned() {
			of, compiled = e.Policy, nil
		}
		if why := cmp.Or(audit.Unaudited(&of.Spec, compiled), unreadParams(s.options.Params, &of.Spec),
			s.unreadLookups(compiled)); why != "" {
			p.exclude(of.Name, of, why)
			continue
		}
		version := versionOfTarget(compiled, s.options.Params, exceptions[of.Name], of)
		version.Lookups = s.lookupsVersion(before[of.Name], of.Name, compiled, time.Now())
		p.add(target{name: of.Name, policy: of, version: version, exempt: s.exempt, host: &s.host})
	}
	s.nativePolicies.plan(p)
	return p.resources, p.problems, true
}

// exceptionVersions returns the versions of the exceptions that have an effect now. An end changes
// them without a change of an object, and the next plan finds it.
func (s *Scanner) exceptionVersions() map[string]uint64 {
	if s.options.Exceptions == nil {
		return nil
	}
	return s.options.Exceptions.Versions(time.Now())
}

// stopWatches ends the watches of resources that are no longer audited; all
// of them with nil.
func (s *Scanner) stopWatches(table *results.Table) {
	for _, gvr := range slices.Collect(maps.Keys(s.watches)) {
		if table == nil || !table.Has(gvr) {
			s.watches[gvr].stop()
			delete(s.watches, gvr)
		}
	}
}
