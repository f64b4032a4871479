package params

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/objects"
)

// Discovery lists the resources of a group version, like a discovery client.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// watch watches the objects of a scope of one kind while a policy reads them. It retries if
// the kind does not exist or access is forbidden.
type watch struct {
	selected
	gvk     schema.GroupVersionKind
	options Options
	changed func()
	synced  func() // called after the first list
	stop    context.CancelFunc
	stopped atomic.Bool
	lists   bool // otherwise only whether the kind exists is of interest
	relist  events.Signal

	found     atomic.Bool
	firstFind chan struct{} // closed when the kind was found for the first time
	finding   sync.Once

	known  atomic.Pointer[known] // nil until the first list is complete
	first  chan struct{}         // closed when the first list is complete
	listed sync.Once
	grace  chan struct{} // closed when requests no longer wait for the first list

	mu       sync.Mutex
	resource string // last known; "" before the first
	problems [steps]string
}

// known contains the objects of a resource. It implements informers.GenericInformer.
type known struct {
	objects  *objectStore
	resource schema.GroupVersionResource
	scope    meta.RESTScope
	mapper   meta.RESTMapper // of this kind only
}

// Informer implements informers.GenericInformer.
func (k *known) Informer() cache.SharedIndexInformer { return syncedInformer{} }

// Lister implements informers.GenericInformer.
func (k *known) Lister() cache.GenericLister {
	return lister{objects: k.objects, resource: k.resource.GroupResource()}
}

// syncedInformer is the part of an informer that the API server's code uses: whether the first
// list is complete. Requests wait for it before.
type syncedInformer struct{ cache.SharedIndexInformer }

// HasSynced implements cache.SharedIndexInformer.
func (syncedInformer) HasSynced() bool { return true }

func newWatch(gvk schema.GroupVersionKind, of selected, lists bool, o Options, changed, synced func(), stop context.CancelFunc) *watch {
	w := &watch{
		selected: of, gvk: gvk, lists: lists, options: o, changed: changed, synced: synced, relist: events.NewSignal(),
		firstFind: make(chan struct{}), first: make(chan struct{}), grace: make(chan struct{}),
	}
	w.stop = func() { w.stopped.Store(true); stop() }
	return w
}

func (w *watch) wanted() bool { return !w.stopped.Load() }

// run watches the kind until ctx ends.
func (w *watch) run(ctx context.Context) {
	timer := time.AfterFunc(maxWait, func() { close(w.grace) })
	defer timer.Stop()
	w.options.Log.Info("watching params", "kind", w.gvk.String(), "namespace", w.namespace, "name", w.name, "labels", w.labels())
	wait.JitterUntilWithContext(ctx, w.follow, retryInterval, 0.5, true)
	if k := w.known.Load(); k != nil {
		k.objects.cache.Close()
	}
	w.options.Log.Info("stopped watching params", "kind", w.gvk.String(), "namespace", w.namespace, "name", w.name, "labels", w.labels())
}

// follow finds the resource and runs its informer. It returns when ctx ends or when
// the resource is removed or forbidden. The cache stays in use until the next
// informer has synced.
func (w *watch) follow(ctx context.Context) {
	resource, err := w.find(ctx)
	w.note(err)
	w.report(ctx, stepFind, err)
	if err != nil {
		return
	}
	if !w.lists {
		select {
		case <-ctx.Done():
		case <-time.After(recheckInterval):
		}
		return
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	k := w.store(resource)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-k.objects.synced:
			w.use(k)
		case <-ctx.Done():
		}
	})
	from := w.source(k, giveUp)
	group.Go(func() { from.retryExcluded(ctx, w.relist.Send) })
	reflector := cache.NewReflectorWithOptions(from.listWatcher(), &item{}, k.objects,
		cache.ReflectorOptions{TypeDescription: k.resource.String(), Backoff: retryBackoff()})
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(ctx)
	giveUp()
	group.Wait()
	if w.known.Load() != k {
		k.objects.cache.Close()
	}
}

// retryBackoff returns the time between a watch that has ended and the next list. The default of client-go grows to a
// minute, also after lists that are repeated for a namespace that fits again. A tenant could cause one each minute, and
// changes to the params of all others would take effect later.
func retryBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 800 * time.Millisecond, Cap: 8 * time.Second, Steps: 10, Factor: 2, Jitter: 1}
}

// store returns the objects of a resource: those of the last watch, if it was of the same.
func (w *watch) store(r metav1.APIResource) *known {
	gvr, scope := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}, meta.RESTScopeRoot
	if r.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	before := w.known.Load()
	if before != nil && before.resource == gvr && before.scope == scope {
		return before
	}
	if before != nil {
		before.objects.cache.SetReplaced(true)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{gvr.GroupVersion()})
	mapper.AddSpecific(w.gvk, gvr, gvr, scope)
	store := newObjectStore(w.options.Memory.budget, w.options.Name, w.explainExcess, w.changed)
	store.name = w.name
	return &known{objects: store, resource: gvr, scope: scope, mapper: mapper}
}

// use makes requests read the objects of a complete list.
func (w *watch) use(k *known) {
	if before := w.known.Swap(k); before != nil && before != k {
		before.objects.cache.Close()
	}
	w.listed.Do(func() {
		close(w.first)
		w.synced()
	})
	w.changed()
}

// note records whether the kind exists, unless an error leaves that open.
func (w *watch) note(err error) {
	switch {
	case err == nil:
		if !w.found.Swap(true) {
			w.changed()
		}
		w.finding.Do(func() { close(w.firstFind) })
	case errors.Is(err, errUnknownKind):
		w.found.Store(false)
	}
}

// complete reports whether everything that is of interest is known.
func (w *watch) complete() bool {
	if w.lists {
		return w.known.Load() != nil
	}
	return w.found.Load()
}

// exists returns an error if the API server does not have the kind. Like await, it waits
// for the first answer.
func (w *watch) exists(ctx context.Context) error {
	if w.found.Load() {
		return nil
	}
	if problem := w.problem(); problem != "" {
		return errors.New(problem)
	}
	select {
	case <-w.firstFind:
		return nil
	case <-w.grace:
	case <-ctx.Done():
	}
	return fmt.Errorf("the kind of %s is still being looked up", describe(w.gvk))
}

// find reads the resource of the kind from the API server. It does not cache the
// result, because the kind may be installed or replaced at any time.
func (w *watch) find(ctx context.Context) (metav1.APIResource, error) {
	list, err := w.options.Discovery.ServerResourcesForGroupVersionWithContext(ctx, w.gvk.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return metav1.APIResource{}, err
	}
	if err == nil {
		for _, r := range list.APIResources {
			if r.Kind == w.gvk.Kind && !strings.Contains(r.Name, "/") {
				r.Group, r.Version = w.gvk.Group, w.gvk.Version
				w.is(r.Name)
				return r, nil
			}
		}
	}
	return metav1.APIResource{}, errUnknownKind
}

func (w *watch) is(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resource = resource
}

// source returns the source of a reflector. It calls giveUp if the kind is forbidden or not
// found, because a reflector backs off for longer than retryInterval.
func (w *watch) source(k *known, giveUp func()) *source {
	namespace := w.namespace
	if k.scope == meta.RESTScopeRoot {
		namespace = "" // each request that names one is an error
	}
	return &source{
		memory: w.options.Memory, gvk: w.gvk, scope: w.scope, parts: w.parts, objects: k.objects, relist: w.relist,
		from: objects.Collection{Client: w.options.REST, Resource: k.resource, Namespace: namespace},
		report: func(ctx context.Context, s step, err error) {
			w.report(ctx, s, err)
			if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
				giveUp()
			}
		},
	}
}

// await returns the cache of the kind. During maxWait after the start of the watch,
// it waits for the first list, unless that has failed.
func (w *watch) await(ctx context.Context) (*known, error) {
	if k := w.known.Load(); k != nil {
		return k, nil
	}
	if problem := w.problem(); problem != "" {
		return nil, errors.New(problem)
	}
	select {
	case <-w.first:
		return w.known.Load(), nil
	case <-w.grace:
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("%s are still being listed", describe(w.gvk))
}
