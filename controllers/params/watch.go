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

// Discovery finds the resource of a kind; a discovery client is one.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// watch follows the objects of one kind, from the moment it is wanted until no
// policy wants it any more. It goes on looking for a kind that is not there,
// and asking where it is not allowed.
type watch struct {
	gvk     schema.GroupVersionKind
	options Options
	changed func()
	stop    context.CancelFunc
	stopped atomic.Bool

	known  atomic.Pointer[known] // nil until the first list is complete
	first  chan struct{}         // closed then
	listed sync.Once
	grace  chan struct{} // closed when requests no longer wait for it

	mu       sync.Mutex
	resource string // as it was found last
	problems [steps]string
}

// known is the objects of a kind. It implements informers.GenericInformer.
type known struct {
	informer cache.SharedIndexInformer
	lister   cache.GenericLister
	scope    meta.RESTScope
	mapper   meta.RESTMapper // of this kind alone
}

// Informer implements informers.GenericInformer.
func (k *known) Informer() cache.SharedIndexInformer { return k.informer }

// Lister implements informers.GenericInformer.
func (k *known) Lister() cache.GenericLister { return k.lister }

func newWatch(gvk schema.GroupVersionKind, o Options, changed func(), stop context.CancelFunc) *watch {
	w := &watch{gvk: gvk, options: o, changed: changed, first: make(chan struct{}), grace: make(chan struct{})}
	w.stop = func() { w.stopped.Store(true); stop() }
	return w
}

func (w *watch) wanted() bool { return !w.stopped.Load() }

// run follows the kind until ctx ends.
func (w *watch) run(ctx context.Context) {
	timer := time.AfterFunc(patience, func() { close(w.grace) })
	defer timer.Stop()
	w.options.Log.Info("watching params", "kind", w.gvk.String())
	wait.JitterUntilWithContext(ctx, w.follow, retry, 0.5, true)
	w.options.Log.Info("stopped watching params", "kind", w.gvk.String())
}

// follow finds the resource and runs an informer on it. It returns when ctx
// ends or when the resource is gone or forbidden; what is known then stays in
// use until there is something newer.
func (w *watch) follow(ctx context.Context) {
	resource, err := w.find(ctx)
	w.report(ctx, stepFind, err)
	if err != nil {
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

// find asks the API server for the resource of the kind, each time anew: the
// kind may have been installed, or installed anew, a moment ago.
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

// inform makes an informer that reports what the API server says to it, and
// gives up where it would only try again after longer and longer pauses.
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

// await is what is known of the kind. In its first second it waits for the
// first list, unless that has failed.
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
