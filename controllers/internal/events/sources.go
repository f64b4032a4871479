// Package events has event sources for reconcilers with a single request, which
// reconciles everything.
package events

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is the queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SingletonHandler enqueues the single request for each event, once for all events within After.
type SingletonHandler struct {
	After time.Duration
}

// Create implements handler.EventHandler.
func (h SingletonHandler) Create(_ context.Context, _ event.CreateEvent, q Queue) { h.add(q) }

// Update implements handler.EventHandler.
func (h SingletonHandler) Update(_ context.Context, _ event.UpdateEvent, q Queue) { h.add(q) }

// Delete implements handler.EventHandler.
func (h SingletonHandler) Delete(_ context.Context, _ event.DeleteEvent, q Queue) { h.add(q) }

// Generic implements handler.EventHandler.
func (h SingletonHandler) Generic(_ context.Context, _ event.GenericEvent, q Queue) { h.add(q) }

func (h SingletonHandler) add(q Queue) { q.AddAfter(reconcile.Request{}, h.After) }

// ChannelSource calls enqueue at the start and after each receive from the channel
// that subscribe returns. The first call reconciles an empty state, too.
func ChannelSource(subscribe func(context.Context) <-chan struct{}, enqueue func(Queue)) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		signals := subscribe(ctx)
		enqueue(q)
		go forward(ctx, signals, func() { enqueue(q) })
		return nil
	})
}

// EnqueueSingleton adds the single request.
func EnqueueSingleton(q Queue) { q.Add(reconcile.Request{}) }

// InformerSource calls enqueue for each event of a kind. Unlike source.Kind it
// removes its event handler when the controller ends, so that a controller can be
// started for each term of leadership.
func InformerSource(c ctrlcache.Cache, kind client.Object, enqueue func(q Queue, obj client.Object)) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		informer, err := c.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		handle := func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if o, ok := obj.(client.Object); ok {
				enqueue(q, o)
			}
		}
		registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    handle,
			UpdateFunc: func(_, obj any) { handle(obj) },
			DeleteFunc: handle,
		})
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registered) }) // fails only if the informer has stopped
		return nil
	})
}

// Log returns a controller's log without the name of the request, which is empty.
func Log(log logr.Logger) func(*reconcile.Request) logr.Logger {
	return func(*reconcile.Request) logr.Logger { return log }
}
