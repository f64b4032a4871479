package single

import (
	"context"
	"slices"
	"sync"
)

// Listeners are told of changes. The zero value has none.
type Listeners struct {
	mu   sync.Mutex
	list []chan struct{}
}

// Subscribe gives a channel that receives after each change, until ctx ends. A
// receiver that is busy misses nothing but repetitions.
func (l *Listeners) Subscribe(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, c)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = slices.DeleteFunc(l.list, func(other chan struct{}) bool { return other == c })
	})
	return c
}

// Tell tells every listener of a change.
func (l *Listeners) Tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.list {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
