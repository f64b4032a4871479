package events

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestBroadcaster(t *testing.T) {
	var b Broadcaster
	b.Notify() // no subscribers
	ctx, end := context.WithCancel(t.Context())
	busy, other := b.Subscribe(ctx), b.Subscribe(t.Context())
	b.Notify()
	b.Notify()
	g := NewWithT(t)
	g.Expect(busy).To(Receive())
	g.Expect(busy).NotTo(Receive(), "two changes before a receive are notified twice")
	g.Expect(other).To(Receive())
	end()
	g.Eventually(func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.subscribers)
	}).WithTimeout(time.Minute).Should(Equal(1))
}
