// Package params finds the objects that policies read as params. It watches
// the kinds that loaded policies name, and no others, on every replica.
//
// A kind is watched in all namespaces: which of them a binding reads is known
// only with each request. What is kept of an object is all of it but
// metadata.managedFields, which takes about 2 KiB more than its size as JSON. A
// kind with many objects that no policy reads, as ConfigMaps, costs that on
// every replica; a kind of its own for params costs what is in it.
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/controllers/internal/events"
)

const (
	// patience is how long requests wait for the first list of a kind, counted
	// from the moment it is watched, and how long a read past the cache may take.
	// It is that of the API server's own engine.
	patience = time.Second
	// retry is how long after a failure a kind is looked for again.
	retry = 2 * time.Second
	// readyWithin is how long a replica that starts is held back by kinds that
	// neither answer nor fail.
	readyWithin = time.Minute
)

// Options say where the objects are.
type Options struct {
	// Client reads the objects, with the permissions of Account.
	Client dynamic.Interface
	// Account is the ServiceAccount, namespace/name, that messages name.
	Account string
	// Aggregated says that the account is granted kinds by the aggregation label.
	Aggregated bool
	Discovery  Discovery
	Log        logr.Logger
	// Registerer takes the metric of this package; nil means no metric.
	Registerer prometheus.Registerer
}

// Store holds the objects of the kinds that are wanted. It implements
// policy.Params and manager.Runnable.
type Store struct {
	options   Options
	listeners events.Broadcaster
	end       context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup

	watches atomic.Pointer[map[schema.GroupVersionKind]*watch] // replaced as a whole; requests read it

	mu       sync.Mutex // held by whoever changes what is watched
	first    []*watch   // those that a replica waits for before it is ready
	deadline <-chan time.Time
}

// New makes a store that watches nothing yet.
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

// Start implements manager.Runnable: when ctx ends, so does every watch.
func (s *Store) Start(ctx context.Context) error {
	<-ctx.Done()
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica
// answers requests.
func (s *Store) NeedLeaderElection() bool { return false }

// Subscribe gives a channel that receives after each change of a State, until
// ctx ends.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// Want watches exactly the given kinds from now on. Repetitions are no matter.
func (s *Store) Want(kinds []admissionregistrationv1.ParamKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := *s.watches.Load()
	after := map[schema.GroupVersionKind]*watch{}
	for i := range kinds {
		gvk, err := parse(&kinds[i])
		if err != nil {
			continue // State and Params say so
		}
		if after[gvk] = before[gvk]; after[gvk] == nil {
			after[gvk] = s.watch(gvk)
		}
	}
	s.watches.Store(&after)
	for gvk, w := range before {
		if after[gvk] == nil {
			w.stop()
		}
	}
	if s.deadline == nil {
		s.deadline = time.After(readyWithin)
		s.first = slices.Collect(maps.Values(after))
	}
}

func (s *Store) watch(gvk schema.GroupVersionKind) *watch {
	ctx, stop := context.WithCancel(s.end)
	w := newWatch(gvk, s.options, s.listeners.Notify, stop)
	if s.end.Err() == nil { // the end waits for those that run
		s.running.Go(func() { w.run(ctx) })
	}
	return w
}

// State tells whether the objects of a kind are known and followed, and if not,
// what the problem is. Without a problem they are being listed.
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
	return problem == "" && w.known.Load() != nil, problem
}

// Ready is an error while a kind that was wanted first, when this replica
// started, is neither known nor found to be broken. Once nil it stays so: a new
// policy does not make replicas unready.
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
		if w.known.Load() == nil && w.problem() == "" && w.wanted() {
			s.first = s.first[i:]
			return fmt.Errorf("params: %s are being listed", describe(w.gvk))
		}
	}
	s.first = nil
	return nil
}

// Params implements policy.Params with the API server's own rules. It reads
// past the cache, for at most a second, only where a name is not in it.
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

// uniform gives a param that was read past the cache, and came as a Go type
// without its kind, the form of those in the cache.
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

// sortByName sorts by namespace, then name. Each is looked up once for an object,
// not for each comparison: a request may read a thousand params.
func sortByName(found []runtime.Object) {
	type named struct {
		namespace, name string
		object          runtime.Object
	}
	all := make([]named, len(found))
	for i, o := range found {
		all[i].object = o
		if u, ok := o.(*unstructured.Unstructured); ok { // uniform has seen to it
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
		return schema.GroupVersionKind{}, errors.New(`spec.paramKind names no kind: write apiVersion as "group/version", or "v1", and kind`)
	}
	return gv.WithKind(kind.Kind), nil
}

// describe is how messages name a kind.
func describe(gvk schema.GroupVersionKind) string {
	return fmt.Sprintf("objects of kind %s in %s", gvk.Kind, gvk.GroupVersion())
}
