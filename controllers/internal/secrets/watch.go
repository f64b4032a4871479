// Package secrets watches, reads and writes single Secrets by name, which is all
// that a Role needs to grant. It also watches ConfigMaps.
package secrets

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Kinds of an Object.
const (
	KindSecret    = "Secret"
	KindConfigMap = "ConfigMap"
)

// minRetry and maxRetry bound the back-off while access is forbidden.
const (
	minRetry = time.Second
	maxRetry = 8 * time.Second
)

const (
	// maxData limits the data of a watched object in bytes. Ostiary reads bundles of up to 64 KiB,
	// keys and kubeconfigs.
	maxData = 256 << 10
	// tooLarge is the annotation with the size of an object whose data is left out.
	tooLarge = "internal.ostiary.dev/too-large"
)

// Object names a Secret or a ConfigMap.
type Object struct{ Kind, Namespace, Name string }

// String returns the kind, the namespace and the name.
func (o Object) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// Watch watches one object by name. While access is forbidden, it retries and the
// last known content remains. It is safe for concurrent use.
type Watch struct {
	object  Object
	client  kubernetes.Interface
	log     logr.Logger
	changed func()
	found   atomic.Pointer[[]any] // the object, if it exists; nil until the first list is complete
	err     atomic.Pointer[error] // of the last list or watch; nil if it succeeded
}

// TooLargeError means that the data of an object exceeds the limit.
type TooLargeError struct{ size string }

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("its data has %s bytes, and the limit is %d: remove what Ostiary does not read, or use an object of its own", e.size, maxData)
}

// NewWatch returns a Watch that has not started. It calls changed after each change
// of the object or of its accessibility. It logs errors, but no content.
func NewWatch(client kubernetes.Interface, o Object, log logr.Logger, changed func()) *Watch {
	return &Watch{object: o, client: client, log: log.WithValues("namespace", o.Namespace, "name", o.Name), changed: changed}
}

// WithoutLogs returns a context in which the client logs nothing. At a high
// verbosity it logs the bodies of requests, which contain keys.
func WithoutLogs(ctx context.Context) context.Context { return logr.NewContext(ctx, logr.Discard()) }

// Run watches the object until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	delay := wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 0.2, Steps: 4, Cap: maxRetry}.DelayFunc()
	_ = delay.Until(WithoutLogs(ctx), true, true, func(ctx context.Context) (bool, error) { // fails only if ctx ends
		w.follow(ctx)
		return false, nil
	})
}

// follow watches the object until ctx ends or access is forbidden.
func (w *Watch) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	report := func(err error) {
		w.report(ctx, err)
		if apierrors.IsForbidden(err) {
			cancel()
		}
	}
	store := cache.NewUndeltaStore(func(found []any) {
		w.found.Store(&found)
		w.changed()
	}, cache.MetaNamespaceKeyFunc)
	core := w.client.CoreV1()
	if w.object.Kind == KindConfigMap {
		cache.NewReflector(listWatch(core.ConfigMaps(w.object.Namespace), w, report), &corev1.ConfigMap{}, store, 0).RunWithContext(ctx)
		return
	}
	cache.NewReflector(listWatch(core.Secrets(w.object.Namespace), w, report), &corev1.Secret{}, store, 0).RunWithContext(ctx)
}

// reader lists and watches the objects of a namespace.
type reader[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}

// listWatch restricts a reader to the object of the Watch and reports the result of
// each request.
func listWatch[L runtime.Object](from reader[L], w *Watch, report func(error)) cache.ListerWatcher {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, w.object.Name).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			list, err := from.List(ctx, o)
			report(err)
			if err == nil {
				err = meta.EachListItem(list, func(o runtime.Object) error { limitData(o); return nil })
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = selector
			events, err := from.Watch(ctx, o)
			report(err)
			if err != nil {
				return nil, err
			}
			return apiwatch.Filter(events, func(e apiwatch.Event) (apiwatch.Event, bool) {
				limitData(e.Object)
				return e, true
			}), nil
		},
	}, w.client)
}

// limitData leaves out what Ostiary does not read, and the data of a large object.
func limitData(o runtime.Object) {
	size := 0
	var m *metav1.ObjectMeta
	switch o := o.(type) {
	case *corev1.Secret:
		for _, value := range o.Data {
			size += len(value)
		}
		if m = &o.ObjectMeta; size > maxData {
			o.Data = nil
		}
	case *corev1.ConfigMap:
		for _, value := range o.Data {
			size += len(value)
		}
		for _, value := range o.BinaryData {
			size += len(value)
		}
		if m = &o.ObjectMeta; size > maxData {
			o.Data, o.BinaryData = nil, nil
		}
	default:
		return
	}
	m.ManagedFields = nil
	delete(m.Annotations, tooLarge) // of the owner
	if size > maxData {
		m.Annotations = map[string]string{tooLarge: strconv.Itoa(size)}
	}
}

// report records the result of a request. Transient errors, such as an expired
// watch, are only logged if the content is known.
func (w *Watch) report(ctx context.Context, err error) {
	var now *error
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		w.log.Error(err, "watching the "+w.object.Kind+" failed, retrying")
		if w.found.Load() != nil && !apierrors.IsForbidden(err) {
			return
		}
		now = &err
	}
	if before := w.err.Swap(now); (before == nil) != (now == nil) {
		w.changed()
	}
}

// Problem returns the error of the last list or watch; nil if it succeeded, or if
// the error is transient and the content is known.
func (w *Watch) Problem() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	if o := w.stored(); o != nil && o.GetAnnotations()[tooLarge] != "" {
		return &TooLargeError{size: o.GetAnnotations()[tooLarge]}
	}
	return nil
}

// stored returns the object as it is stored; nil if it does not exist or has not been read.
func (w *Watch) stored() metav1.Object {
	if found := w.found.Load(); found != nil && len(*found) > 0 {
		o, _ := (*found)[0].(metav1.Object)
		return o
	}
	return nil
}

// Secret returns the Secret; nil if it does not exist or has not been read yet. It
// must not be changed.
func (w *Watch) Secret() *corev1.Secret {
	if found := w.found.Load(); found != nil && len(*found) > 0 {
		s, _ := (*found)[0].(*corev1.Secret)
		if s != nil && s.Annotations[tooLarge] != "" {
			return nil // Problem says why
		}
		return s
	}
	return nil
}

// Data returns the object's content: nil if the object does not exist, not known
// if it has not been read yet.
func (w *Watch) Data() (data map[string][]byte, known bool) {
	found := w.found.Load()
	if found == nil || len(*found) == 0 {
		return nil, found != nil
	}
	if w.stored().GetAnnotations()[tooLarge] != "" {
		return nil, false // Problem says why
	}
	data = map[string][]byte{}
	switch o := (*found)[0].(type) {
	case *corev1.Secret:
		maps.Copy(data, o.Data)
	case *corev1.ConfigMap:
		maps.Copy(data, o.BinaryData)
		for key, value := range o.Data {
			data[key] = []byte(value)
		}
	}
	return data, true
}
