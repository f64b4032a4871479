// Package params provides the objects that policies read as params. Every replica
// watches the kinds that loaded policies specify, and no others.
//
// It watches a kind in all namespaces, because the namespace that a binding reads
// depends on the request. The cache contains each object without
// metadata.managedFields, in about 2 KiB more memory than its JSON size. A kind with
// many objects that no policy reads, such as ConfigMap, uses that memory on every
// replica. A dedicated kind for params avoids it.
package params

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/controllers/internal/events"
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
	// Client reads the objects, with the permissions of Account.
	Client dynamic.Interface
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

	watches atomic.Pointer[map[schema.GroupVersionKind]*watch] // replaced as a whole; requests read it

	mu       sync.Mutex // guards changes of watches
	first    []*watch   // the kinds for which a starting replica waits
	deadline <-chan time.Time
}

// New returns a Store that watches nothing yet.
func New(o Options) *Store {
	s := &Store{options: o}
	s.end, s.stop = context.WithCancel(context.Background())
	s.watches.Store(&map[schema.GroupVersionKind]*watch{})
	if o.Registerer == nil {
		return s
	}
	o.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ostiary_params_informers",
		Help: "Kinds of params that this replica watches, including those that it lacks the permission for.",
	}, func() float64 { return float64(len(*s.watches.Load())) }))
	return s
}

// Start implements manager.Runnable. It ends all watches when ctx ends.
func (s *Store) Start(ctx context.Context) error {
	<-ctx.Done()
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.Wait()
	return nil
}

// NeedLeaderElection returns false: every replica evaluates requests.
func (s *Store) NeedLeaderElection() bool { return false }

// Subscribe returns a channel that receives after each change of a State, until
// ctx ends.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// Want sets the kinds to watch, and kinds that are not read and only have to exist. It
// ignores duplicates.
func (s *Store) Want(kinds []admissionregistrationv1.ParamKind, unread ...admissionregistrationv1.ParamKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := *s.watches.Load()
	after := map[schema.GroupVersionKind]*watch{}
	for i, kind := range slices.Concat(kinds, unread) {
		gvk, err := parse(&kind)
		if err != nil || after[gvk] != nil {
			continue // State, CheckKind and Params return the error
		}
		lists := i < len(kinds)
		if after[gvk] = before[gvk]; after[gvk] == nil || after[gvk].lists != lists {
			after[gvk] = s.watch(gvk, lists)
		}
	}
	s.watches.Store(&after)
	for gvk, w := range before {
		if after[gvk] != w {
			w.stop()
		}
	}
	if s.deadline == nil {
		s.deadline = time.After(readyTimeout)
		s.first = slices.Collect(maps.Values(after))
	}
}

func (s *Store) watch(gvk schema.GroupVersionKind, lists bool) *watch {
	ctx, stop := context.WithCancel(s.end)
	w := newWatch(gvk, lists, s.options, s.listeners.Notify, stop)
	if s.end.Err() == nil { // Start must not wait for later goroutines
		s.running.Go(func() { w.run(ctx) })
	}
	return w
}

// State reports whether the cache of a kind is complete and up to date, and
// otherwise its problem. Without a problem, the first list is in progress.
func (s *Store) State(kind *admissionregistrationv1.ParamKind) (synced bool, problem string) {
	gvk, err := parse(kind)
	if err != nil {
		return false, err.Error()
	}
	w := (*s.watches.Load())[gvk]
	if w == nil {
		return false, ""
	}
	problem = w.problem()
	return problem == "" && w.complete(), problem
}

// Version returns a number that changes with the cached objects of a kind.
func (s *Store) Version(kind *admissionregistrationv1.ParamKind) uint64 {
	gvk, err := parse(kind)
	if err != nil {
		return 0
	}
	w := (*s.watches.Load())[gvk]
	if w == nil {
		return 0
	}
	k := w.known.Load()
	if k == nil {
		return 0
	}
	var sum uint64 // in any order
	for _, object := range k.informer.GetStore().List() {
		if u, ok := object.(*unstructured.Unstructured); ok {
			h := fnv.New64a()
			_, _ = h.Write([]byte(string(u.GetUID()) + " " + u.GetResourceVersion())) // never fails
			sum += h.Sum64()
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
	w := (*s.watches.Load())[gvk]
	if w == nil {
		return fmt.Errorf("the kind of %s is not looked up yet", describe(gvk))
	}
	return w.exists(ctx)
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

// Params implements policy.Params with the API server's rules. If a named object is
// not in the cache, Params reads it from the API server, with a timeout of one second.
func (s *Store) Params(ctx context.Context, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error) {
	if kind == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	gvk, err := parse(kind)
	if err != nil {
		return nil, err
	}
	w := (*s.watches.Load())[gvk]
	if w == nil {
		return nil, fmt.Errorf("%s are not watched yet", describe(gvk))
	}
	known, err := w.await(ctx)
	if err != nil {
		return nil, err
	}
	found, err := generic.CollectParams(kind, known, known.scope, ref, namespace, live{Interface: s.options.Client, ctx: ctx, watch: w}, known.mapper)
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
