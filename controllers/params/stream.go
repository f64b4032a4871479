package params

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// listTimeout limits a list, so that a server that stops to send does not delay others.
// API servers end requests after a minute.
const listTimeout = 2 * time.Minute

// pageSize is the number of objects in a page of a list. API servers end a request after a minute, so they have to send
// this many objects of up to 1.5 MiB in that time, and not everything that tenants have stored.
const pageSize = 200

// source lists and watches the objects of a scope for a reflector. A list puts its objects
// into the store one by one and returns none of them, because a list of all could exceed the
// memory.
type source struct {
	memory  *Memory
	gvk     schema.GroupVersionKind
	from    objects.Collection
	scope   scope
	parts   unstructuredjson.Selection
	objects *objectStore
	relist  <-chan struct{} // ends the current watch, so that a list follows
	report  func(ctx context.Context, s step, err error)
	// unselectable is true after the server rejected the selection of a name.
	unselectable atomic.Bool
}

// IsWatchListSemanticsUnSupported makes reflectors list. A watch that begins with all objects
// would collect them in a second store.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

func (s *source) options(o metav1.ListOptions) metav1.ListOptions {
	o = s.scope.listOptions(o)
	if s.unselectable.Load() {
		o.FieldSelector = ""
	}
	return o
}

// listWatcher returns the source as a reflector needs it.
func (s *source) listWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}, s)
}

func (s *source) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.Continue == "" {
		s.objects.beginList()
	}
	switch last := s.objects.lastVersion(); {
	case o.Limit != 0:
		o.ResourceVersion = "" // API servers send all objects at once for version "0"
	case o.ResourceVersion == "0" && last != "": // all objects, because the server has no more pages
		o.ResourceVersion = last // not an older state of another API server
	}
	list, err := s.page(ctx, s.from, o, func(object *item) error {
		s.objects.put(object)
		return nil
	})
	if token := objects.NewerPages(err); token != "" && token != o.Continue {
		o.Continue = token // a watch from the version of the first page repeats what has changed since
		return s.list(ctx, o)
	}
	if apierrors.IsBadRequest(err) && s.scope.name != "" && !s.unselectable.Swap(true) { // some aggregated API servers select no names
		return s.list(ctx, o)
	}
	s.report(ctx, stepList, err)
	if err != nil {
		return nil, err
	}
	empty := &unstructured.UnstructuredList{Object: map[string]any{}}
	empty.SetResourceVersion(list.ResourceVersion)
	empty.SetContinue(list.Continue)
	return empty, nil
}

// page calls visit for each object of a page. It waits for other lists only after the API
// server has answered, so that a server that does not answer delays no list of others.
func (s *source) page(ctx context.Context, from objects.Collection, o metav1.ListOptions,
	visit func(*item) error) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	leave := func() {}
	enter := func() error {
		select {
		case s.memory.lists <- struct{}{}:
			leave = func() { <-s.memory.lists }
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { leave() }()
	return from.List(ctx, s.options(o), enter, func(raw []byte) error {
		object, err := s.memory.decode(raw, s.parts, s.gvk)
		if err != nil {
			return fmt.Errorf("decoding an object: %w", err)
		}
		return visit(object)
	})
}

func (s *source) watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	events, err := s.from.Watch(ctx, s.options(o))
	s.report(ctx, stepWatch, err)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &eventStream{source: s, events: events, results: make(chan apiwatch.Event), end: cancel, ctx: ctx}
	w.running.Go(w.run)
	return w, nil
}

// eventStream decodes the events of a watch. It implements watch.Interface.
type eventStream struct {
	source  *source
	events  *objects.Events
	results chan apiwatch.Event
	ctx     context.Context //nolint:containedctx // the life of the watch
	end     context.CancelFunc
	running sync.WaitGroup
}

// Stop implements watch.Interface.
func (w *eventStream) Stop() {
	w.end()
	_ = w.events.Close()
	w.running.Wait()
}

// ResultChan implements watch.Interface.
func (w *eventStream) ResultChan() <-chan apiwatch.Event { return w.results }

func (w *eventStream) run() {
	defer close(w.results)
	stopRelists := make(chan struct{})
	defer close(stopRelists)
	relist := make(chan struct{})
	go func() { // a read of the next event does not end for another reason
		select {
		case <-w.source.relist:
			close(relist)
			_ = w.events.Close()
		case <-stopRelists:
		case <-w.ctx.Done():
		}
	}()
	for {
		kind, raw, err := w.events.Next()
		select {
		case <-relist:
			status := apierrors.NewResourceExpired("objects that were left out are read again").Status()
			w.send(apiwatch.Event{Type: apiwatch.Error, Object: &status})
			return
		default:
		}
		if errors.Is(err, objects.ErrTooLarge) {
			w.send(failedEvent(err))
			return
		}
		if err != nil {
			return // a new watch follows, from the last event on
		}
		if !w.send(w.source.event(kind, raw)) {
			return
		}
	}
}

func (w *eventStream) send(e apiwatch.Event) bool {
	select {
	case w.results <- e:
		return e.Type != apiwatch.Error
	case <-w.ctx.Done():
		return false
	}
}

func (s *source) event(kind apiwatch.EventType, raw []byte) apiwatch.Event {
	if kind == apiwatch.Error {
		status := &metav1.Status{}
		if err := json.Unmarshal(raw, status); err != nil {
			return failedEvent(err)
		}
		return apiwatch.Event{Type: kind, Object: status}
	}
	object, err := s.memory.decode(raw, s.parts, s.gvk)
	if err != nil {
		return failedEvent(err)
	}
	return apiwatch.Event{Type: kind, Object: object}
}

// failedEvent makes the reflector list again.
func failedEvent(err error) apiwatch.Event {
	status := apierrors.NewInternalError(fmt.Errorf("decoding an event: %w", err)).Status()
	return apiwatch.Event{Type: apiwatch.Error, Object: &status}
}

var _ apiwatch.Interface = (*eventStream)(nil)
