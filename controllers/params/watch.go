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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// Discovery lists the resources of a group version, like a discovery client.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// watch watches the objects of one kind while a policy reads it. It retries if the
// kind does not exist or access is forbidden.
type watch struct {
	gvk     schema.GroupVersionKind
	options Options
	changed func()
	stop    context.CancelFunc
	stopped atomic.Bool
	lists   bool // otherwise only whether the kind exists is of interest

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

// known contains the objects of a kind. It implements informers.GenericInformer.
type known struct {
	informer cache.SharedIndexInformer
	lister   cache.GenericLister
	scope    meta.RESTScope
	mapper   meta.RESTMapper // of this kind only
}

// Informer implements informers.GenericInformer.
func (k *known) Informer() cache.SharedIndexInformer { return k.informer }

// Lister implements informers.GenericInformer.
func (k *known) Lister() cache.GenericLister { return k.lister }

func newWatch(gvk schema.GroupVersionKind, lists bool, o Options, changed func(), stop context.CancelFunc) *watch {
	w := &watch{gvk: gvk, lists: lists, options: o, changed: changed, firstFind: make(chan struct{}), first: make(chan struct{}), grace: make(chan struct{})}
	w.stop = func() { w.stopped.Store(true); stop() }
	return w
}

func (w *watch) wanted() bool { return !w.stopped.Load() }

// run watches the kind until ctx ends.
func (w *watch) run(ctx context.Context) {
	timer := time.AfterFunc(maxWait, func() { close(w.grace) })
	defer timer.Stop()
	w.options.Log.Info("watching params", "kind", w.gvk.String())
	wait.JitterUntilWithContext(ctx, w.follow, retryInterval, 0.5, true)
	w.options.Log.Info("stopped watching params", "kind", w.gvk.String())
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
	k, err := w.inform(resource, giveUp)
	if err != nil {
		w.report(ctx, stepFind, err)
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), k.informer.HasSynced) {
			w.known.Store(k)
			w.listed.Do(func() { close(w.first) })
			w.changed()
		}
	})
	k.informer.RunWithContext(ctx)
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

// inform returns an informer that reports the result of each request. It calls
// giveUp if the kind is forbidden or not found, because an informer backs off for
// longer than retryInterval.
func (w *watch) inform(r metav1.APIResource, giveUp func()) (*known, error) {
	gvr := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
	client := w.options.Client.Resource(gvr)
	report := func(ctx context.Context, s step, err error) {
		w.report(ctx, s, err)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			giveUp()
		}
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, o)
			report(ctx, stepList, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			watch, err := client.Watch(ctx, o)
			report(ctx, stepWatch, err)
			return watch, err
		},
	}, w.options.Client), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		Indexers:          cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		ObjectDescription: gvr.String(),
	})
	if err := informer.SetTransform(ctrlcache.TransformStripManagedFields()); err != nil {
		return nil, fmt.Errorf("preparing a watch: %w", err)
	}
	scope := meta.RESTScopeRoot
	if r.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{gvr.GroupVersion()})
	mapper.AddSpecific(w.gvk, gvr, gvr, scope)
	lister := dynamiclister.NewRuntimeObjectShim(dynamiclister.New(informer.GetIndexer(), gvr))
	return &known{informer: informer, lister: lister, scope: scope, mapper: mapper}, nil
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
