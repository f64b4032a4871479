// Package params provides the objects that policies read as params. Every replica
// watches what the paramRefs of loaded policies can select, and nothing else: a namespace, a
// name or labels, in one namespace or, if it depends on the request, in all.
//
// It keeps the parts of objects that expressions can read, within a budget of memory: see
// internal/cachebudget. If the objects of a namespace exceed it, requests that read params
// there are errors, and other namespaces are not affected.
package params

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	// maxWait is how long requests wait for the first list of a kind, from the start
	// of its watch, and the timeout of a read without the cache. The API server's
	// ValidatingAdmissionPolicies have the same limit.
	maxWait = time.Second
	// retryInterval is the interval between attempts to find and list a kind.
	retryInterval = 2 * time.Second
	// recheckInterval is the interval between checks of a kind that exists and is not read.
	recheckInterval = 30 * time.Second
	// readyTimeout is how long a starting replica stays unready because of kinds
	// whose list neither completes nor fails.
	readyTimeout = time.Minute
)

// Options configures a Store.
type Options struct {
	// Client reads objects that are not cached, with the permissions of Account. REST lists
	// and watches, with the same permissions.
	Client dynamic.Interface
	REST   rest.Interface
	// Memory bounds the cached objects. Name is the name of this cache in its metric.
	Memory *Memory
	Name   string
	// Account is the ServiceAccount of Client, namespace/name, for messages.
	Account string
	// Aggregated means that ClusterRoles with AggregationLabel apply to Account.
	Aggregated bool
	Discovery  Discovery
	Log        logr.Logger
	// Registerer registers the metric of this package; nil disables it.
	Registerer prometheus.Registerer
}

// Store caches the objects of the kinds that policies read. It implements
// policy.Params and manager.Runnable.
type Store struct {
	options   Options
	listeners events.Broadcaster
	end       context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup

	table atomic.Pointer[table] // replaced as a whole; requests read it

	mu       sync.Mutex // guards changes of table
	first    []*watch   // the kinds for which a starting replica waits
	deadline <-chan time.Time
}

// table has the watches of each kind.
type table map[schema.GroupVersionKind]watchesOfKind

// watchesOfKind are the watches that policies need, those of small scopes first, and earlier
// ones that serve requests until the lists of those that replace them are complete.
type watchesOfKind struct{ wanted, replaced []*watch }

// New returns a Store that watches nothing yet.
func New(o Options) *Store {
	s := &Store{options: o}
	s.end, s.stop = context.WithCancel(context.Background())
	s.table.Store(&table{})
	if o.Registerer == nil {
		return s
	}
	o.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ostiary_params_informers",
		Help: "Watches of params on this replica, including those that it lacks the permission for.",
	}, func() float64 { return float64(s.table.Load().size()) }))
	return s
}

func (t table) size() (n int) {
	for _, watches := range t {
		n += len(watches.wanted) + len(watches.replaced)
	}
	return n
}

// Start implements manager.Runnable. It ends all watches when ctx ends.
func (s *Store) Start(ctx context.Context) error {
	<-ctx.Done()
	s.stop()
	s.awaitWant()
	s.running.Wait()
	return nil
}

// awaitWant waits until an earlier call of Want has returned. A later one starts nothing.
func (s *Store) awaitWant() {
	s.mu.Lock()
	defer s.mu.Unlock() //nolint:gocritic // the lock alone is the wait
}

// NeedLeaderElection returns false: every replica evaluates requests.
func (s *Store) NeedLeaderElection() bool { return false }

// Subscribe returns a channel that receives after each change of a State, until
// ctx ends.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// Want sets what to watch, and kinds that are not read and only have to exist. It ignores
// duplicates. Watches that are still needed continue. A watch that others replace serves
// requests until their lists are complete.
func (s *Store) Want(needs []policy.ParamNeed, unread ...admissionregistrationv1.ParamKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := *s.table.Load(), table{}
	for gvk, scopes := range planScopes(needs) {
		after[gvk] = s.replaceWatches(gvk, before[gvk], scopes)
	}
	for _, kind := range unread {
		gvk, err := parse(&kind)
		if _, ok := after[gvk]; ok || err != nil {
			continue // State, CheckKind and Params return the error
		}
		i := slices.IndexFunc(before[gvk].wanted, func(w *watch) bool { return !w.lists })
		if i < 0 {
			after[gvk] = watchesOfKind{wanted: []*watch{s.watch(gvk, selected{}, false)}}
		} else {
			after[gvk] = watchesOfKind{wanted: before[gvk].wanted[i : i+1]}
		}
	}
	s.publish(after)
	if s.deadline == nil {
		s.deadline = time.After(readyTimeout)
		for _, watches := range after {
			s.first = append(s.first, watches.wanted...)
		}
	}
}

// replaceWatches returns the watches of scopes, and earlier ones that they replace.
func (s *Store) replaceWatches(gvk schema.GroupVersionKind, before watchesOfKind, scopes []selected) (after watchesOfKind) {
	all := slices.Concat(before.wanted, before.replaced)
	for _, of := range scopes {
		i := slices.IndexFunc(all, func(w *watch) bool {
			return w.lists && w.covers(of.scope) && of.covers(w.scope) && w.parts.Covers(of.parts)
		})
		if i < 0 {
			after.wanted = append(after.wanted, s.watch(gvk, of, true))
			continue
		}
		if k := all[i].known.Load(); k != nil {
			k.objects.cache.SetReplaced(false)
		}
		after.wanted = append(after.wanted, all[i])
		all = slices.Delete(all, i, i+1)
	}
	for _, w := range all {
		if w.lists && len(after.replaced) < maxWatchesOfKind {
			after.replaced = append(after.replaced, w)
		}
	}
	return after
}

// publish makes requests use a table, without earlier watches that are no longer needed.
func (s *Store) publish(after table) {
	kept := map[*watch]bool{}
	for gvk, watches := range after {
		watches.replaced = slices.DeleteFunc(slices.Clone(watches.replaced), func(w *watch) bool { return !isReplaced(w, watches.wanted) })
		after[gvk] = watches
		for _, w := range slices.Concat(watches.wanted, watches.replaced) {
			kept[w] = true
		}
	}
	before := s.table.Swap(&after)
	for _, watches := range *before {
		for _, w := range slices.Concat(watches.wanted, watches.replaced) {
			if !kept[w] {
				w.stop()
			}
		}
	}
}

// isReplaced reports whether a watch has objects that a watch which is still being listed will
// have. Its objects then do not count in the shares of namespaces.
func isReplaced(w *watch, wanted []*watch) bool {
	k := w.known.Load()
	if k == nil || !slices.ContainsFunc(wanted, func(other *watch) bool { return !other.complete() && other.overlaps(w.scope) }) {
		return false
	}
	k.objects.cache.SetReplaced(true)
	return true
}

// settle stops the watches whose replacements are complete.
func (s *Store) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end.Err() == nil {
		s.publish(maps.Clone(*s.table.Load()))
	}
}

func (s *Store) watch(gvk schema.GroupVersionKind, of selected, lists bool) *watch {
	ctx, stop := context.WithCancel(s.end)
	w := newWatch(gvk, of, lists, s.options, s.listeners.Notify, s.settle, stop)
	if s.end.Err() == nil { // Start must not wait for later goroutines
		s.running.Go(func() { w.run(ctx) })
	}
	return w
}

// watchesOf returns the watches that requests with some paramRefs use; all of the kind without any.
func (s *Store) watchesOf(kind *admissionregistrationv1.ParamKind, refs []*admissionregistrationv1.ParamRef) ([]*watch, error) {
	gvk, err := parse(kind)
	if err != nil {
		return nil, err
	}
	wanted := (*s.table.Load())[gvk].wanted
	if len(refs) == 0 {
		return wanted, nil
	}
	var out []*watch
	for _, ref := range refs {
		i := slices.IndexFunc(wanted, func(w *watch) bool { return w.covers(scopeOf(ref)) })
		if i < 0 {
			return nil, nil
		}
		if !slices.Contains(out, wanted[i]) {
			out = append(out, wanted[i])
		}
	}
	return out, nil
}

// State reports whether the cache of what some paramRefs select, or of all of the kind, is
// complete and up to date, and otherwise its problem. Without a problem, the first list is in
// progress.
func (s *Store) State(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) (synced bool, problem string) {
	watches, err := s.watchesOf(kind, refs)
	if err != nil {
		return false, err.Error()
	}
	synced = len(watches) > 0
	for _, w := range watches {
		if problem := w.problem(); problem != "" {
			return false, problem
		}
		synced = synced && w.complete()
	}
	return synced, ""
}

// Excess names the namespaces whose params exceed the budget, and what to do about them; "" if
// there are none.
func (s *Store) Excess(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) string {
	watches, _ := s.watchesOf(kind, refs) // State returns the error
	for _, w := range watches {
		if excess := w.excess(); excess != "" {
			return excess
		}
	}
	return ""
}

// Version returns a number that changes with the cached objects that some paramRefs select.
func (s *Store) Version(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) (sum uint64) {
	watches, _ := s.watchesOf(kind, refs) // State returns the error
	for _, w := range watches {
		if k := w.known.Load(); k != nil {
			sum += k.objects.hash()
		}
	}
	return sum
}

// CheckKind implements policy.ParamKinds.
func (s *Store) CheckKind(ctx context.Context, kind *admissionregistrationv1.ParamKind) error {
	gvk, err := parse(kind)
	if err != nil {
		return err
	}
	wanted := (*s.table.Load())[gvk].wanted
	if len(wanted) == 0 {
		return fmt.Errorf("the kind of %s is not looked up yet", describe(gvk))
	}
	for _, w := range wanted {
		if w.found.Load() {
			return nil
		}
	}
	return wanted[0].exists(ctx)
}

// Ready returns an error while the list of a kind from the first call of Want has
// neither completed nor failed. Later calls of Want do not make the replica unready
// again.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.first {
		select {
		case <-s.deadline:
			s.first = nil
			return nil
		default:
		}
		if !w.complete() && w.problem() == "" && w.wanted() {
			s.first = s.first[i:]
			return fmt.Errorf("params: %s are being listed", describe(w.gvk))
		}
	}
	s.first = nil
	return nil
}

// Params implements policy.Params for whole objects.
func (s *Store) Params(ctx context.Context, kind *admissionregistrationv1.ParamKind,
	ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error) {
	if kind == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	return s.ReadParams(ctx, policy.ParamNeed{Kind: *kind, Ref: ref, Reads: policy.WholeParams()}, namespace)
}

// ReadParams implements policy.ParamReader with the API server's rules. If a named object is
// not in the cache, ReadParams reads it from the API server, with a timeout of one second.
func (s *Store) ReadParams(ctx context.Context, need policy.ParamNeed, namespace string) ([]runtime.Object, error) {
	gvk, err := parse(&need.Kind)
	if err != nil {
		return nil, err
	}
	w := s.find(gvk, need)
	if w == nil {
		return nil, fmt.Errorf("%s are not watched yet", describe(gvk))
	}
	known, err := w.await(ctx)
	if err != nil {
		return nil, err
	}
	if err := known.excess(need.Ref, namespace); err != nil {
		return nil, err
	}
	found, err := generic.CollectParams(&need.Kind, known, known.scope, need.Ref, namespace,
		live{Interface: s.options.Client, ctx: ctx, watch: w}, known.mapper)
	if err != nil {
		return nil, err
	}
	if err := uniform(found, gvk); err != nil {
		return nil, err
	}
	if len(found) > 1 {
		sortByName(found)
	}
	return found, nil
}

// find returns the watch that has what a binding reads: one whose list is complete, or else
// one to wait for.
func (s *Store) find(gvk schema.GroupVersionKind, need policy.ParamNeed) (out *watch) {
	watches := (*s.table.Load())[gvk]
	of := scopeOf(need.Ref)
	for _, list := range [...][]*watch{watches.wanted, watches.replaced} {
		for _, w := range list {
			if !w.lists || !w.covers(of) || !w.parts.Covers(need.Reads) {
				continue
			}
			if w.complete() {
				return w
			}
			if out == nil {
				out = w
			}
		}
	}
	return out
}

// excess returns an error if the namespace in which a request reads params is over its limit.
// The code of the API server would log each of these errors.
func (k *known) excess(ref *admissionregistrationv1.ParamRef, namespace string) error {
	if k.scope == meta.RESTScopeRoot {
		return k.objects.excess("")
	}
	return k.objects.excess(cmp.Or(ref.Namespace, namespace))
}

// uniform converts params from live reads, which are Go types without a kind, to
// unstructured objects like those in the cache.
func uniform(found []runtime.Object, gvk schema.GroupVersionKind) error {
	for i, o := range found {
		if _, ok := o.(*unstructured.Unstructured); ok {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Errorf("converting a param: %w", err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(gvk)
		u.SetManagedFields(nil)
		found[i] = u
	}
	return nil
}

// sortByName sorts by namespace, then name. It reads them once per object instead of
// once per comparison, because a request may read a thousand params.
func sortByName(found []runtime.Object) {
	type named struct {
		namespace, name string
		object          runtime.Object
	}
	all := make([]named, len(found))
	for i, o := range found {
		all[i].object = o
		if u, ok := o.(*unstructured.Unstructured); ok { // uniform converted the others
			all[i].namespace, all[i].name = u.GetNamespace(), u.GetName()
		}
	}
	slices.SortFunc(all, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for i := range all {
		found[i] = all[i].object
	}
}

func parse(kind *admissionregistrationv1.ParamKind) (schema.GroupVersionKind, error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil || gv.Version == "" || kind.Kind == "" {
		return schema.GroupVersionKind{}, errors.New(`spec.paramKind is not a kind: specify apiVersion as "group/version" or "v1", and kind`)
	}
	return gv.WithKind(kind.Kind), nil
}

// describe returns the name of a kind in messages.
func describe(gvk schema.GroupVersionKind) string {
	return fmt.Sprintf("objects of kind %s in %s", gvk.Kind, gvk.GroupVersion())
}
