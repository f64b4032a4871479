package backends

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// minRetry and maxRetry bound the back-off after an error.
	minRetry = time.Second
	maxRetry = 8 * time.Second
)

// object names a Secret or a ConfigMap.
type object struct {
	kind, namespace, name string
}

const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"
)

func (o object) String() string { return o.kind + " " + o.namespace + "/" + o.name }

func (o object) resource() string {
	if o.kind == kindSecret {
		return "secrets"
	}
	return "configmaps"
}

// watch watches one object by name, which is all that a Role needs to grant, while
// a policy needs it. It retries while access is forbidden.
type watch struct {
	object  object
	client  kubernetes.Interface
	changed func()
	stop    context.CancelFunc
	store   atomic.Pointer[cache.Store] // nil until the first list is complete

	mu  sync.Mutex
	err error // of the last list or watch
}

// run watches the object until ctx ends. Nothing is logged in ctx.
func (w *watch) run(ctx context.Context) {
	backoff := wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 0.2, Steps: 4, Cap: maxRetry}
	for ctx.Err() == nil {
		w.follow(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// follow runs an informer until ctx ends or the object is forbidden. The last
// known content remains.
func (w *watch) follow(ctx context.Context) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	report := func(err error) {
		w.report(ctx, err)
		if apierrors.IsForbidden(err) {
			giveUp()
		}
	}
	informer := cache.NewSharedIndexInformer(w.listWatch(report), w.empty(), 0, nil)
	notify := func(any) { w.changed() }
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, o any) { notify(o) }, DeleteFunc: notify,
	}); err != nil {
		report(fmt.Errorf("preparing a watch: %w", err))
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			store := informer.GetStore()
			w.store.Store(&store)
			w.changed()
		}
	})
	informer.RunWithContext(ctx)
}

func (w *watch) empty() runtime.Object {
	if w.object.kind == kindSecret {
		return &corev1.Secret{}
	}
	return &corev1.ConfigMap{}
}

func (w *watch) listWatch(report func(error)) cache.ListerWatcher {
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, w.object.name).String()
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return w.client.CoreV1().ConfigMaps(w.object.namespace).List(ctx, o)
	}
	follow := func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		return w.client.CoreV1().ConfigMaps(w.object.namespace).Watch(ctx, o)
	}
	if w.object.kind == kindSecret {
		list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return w.client.CoreV1().Secrets(w.object.namespace).List(ctx, o)
		}
		follow = func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return w.client.CoreV1().Secrets(w.object.namespace).Watch(ctx, o)
		}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = named
			found, err := list(ctx, o)
			report(err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = named
			events, err := follow(ctx, o)
			report(err)
			return events, err
		},
	}, w.client)
}

// report records the result of the last request. Transient errors, such as an
// expired watch, are ignored if the content is known.
func (w *watch) report(ctx context.Context, err error) {
	if err != nil && (ctx.Err() != nil || w.store.Load() != nil && !apierrors.IsForbidden(err)) {
		return
	}
	w.mu.Lock()
	same := (w.err == nil) == (err == nil)
	w.err = err
	w.mu.Unlock()
	if !same {
		w.changed()
	}
}

func (w *watch) problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// data returns the object's content: nil if the object does not exist, not ok if
// that is unknown.
func (w *watch) data() (data map[string][]byte, ok bool) {
	store := w.store.Load()
	if store == nil {
		return nil, false
	}
	for _, found := range (*store).List() {
		switch o := found.(type) {
		case *corev1.Secret:
			data = o.Data
		case *corev1.ConfigMap:
			data = o.BinaryData
			if len(o.Data) > 0 {
				data = map[string][]byte{}
				for key, value := range o.BinaryData {
					data[key] = value
				}
				for key, value := range o.Data {
					data[key] = []byte(value)
				}
			}
		}
		if data == nil {
			data = map[string][]byte{}
		}
	}
	return data, true
}
