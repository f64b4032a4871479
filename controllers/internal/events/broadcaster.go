package events

import (
	"context"
	"slices"
	"sync"
)

// Signal wakes the goroutine that receives from it. Several signals before a
// receive count as one.
type Signal chan struct{}

// NewSignal returns a Signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send signals without blocking.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Merge returns a Signal that is sent after each change of any source, until ctx
// ends.
func Merge(ctx context.Context, sources ...func(context.Context) <-chan struct{}) Signal {
	merged := NewSignal()
	for _, subscribe := range sources {
		go forward(ctx, subscribe(ctx), merged.Send)
	}
	return merged
}

// forward calls send after each receive, until ctx ends.
func forward(ctx context.Context, from <-chan struct{}, send func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			send()
		}
	}
}

// Broadcaster notifies subscribers of changes. The zero value has none. It is safe
// for concurrent use.
type Broadcaster struct {
	mu          sync.Mutex
	subscribers []Signal
}

// Subscribe returns a channel that receives after each change, until ctx ends.
// Several changes before a receive count as one.
func (b *Broadcaster) Subscribe(ctx context.Context) <-chan struct{} {
	c := NewSignal()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers = append(b.subscribers, c)
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.subscribers = slices.DeleteFunc(b.subscribers, func(other Signal) bool { return other == c })
	})
	return c
}

// Notify notifies every subscriber of a change.
func (b *Broadcaster) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.subscribers {
		c.Send()
	}
}
