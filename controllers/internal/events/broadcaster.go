package events

import (
	"context"
	"slices"
	"sync"
)

// Broadcaster notifies subscribers of changes. The zero value has none. It is safe
// for concurrent use.
type Broadcaster struct {
	mu          sync.Mutex
	subscribers []chan struct{}
}

// Subscribe returns a channel that receives after each change, until ctx ends.
// Several changes before a receive count as one.
func (b *Broadcaster) Subscribe(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers = append(b.subscribers, c)
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.subscribers = slices.DeleteFunc(b.subscribers, func(other chan struct{}) bool { return other == c })
	})
	return c
}

// Notify notifies every subscriber of a change.
func (b *Broadcaster) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
