package events

import (
	"context"
	"slices"
	"sync"
)

// Broadcaster are told of changes. The zero value has none.
type Broadcaster struct {
	mu          sync.Mutex
	subscribers []chan struct{}
}

// Subscribe gives a channel that receives after each change, until ctx ends. A
// receiver that is busy misses nothing but repetitions.
func (l *Broadcaster) Subscribe(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers = append(l.subscribers, c)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.subscribers = slices.DeleteFunc(l.subscribers, func(other chan struct{}) bool { return other == c })
	})
	return c
}

// Notify tells every listener of a change.
func (l *Broadcaster) Notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
