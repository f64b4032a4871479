package events

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestListenersHearOfChangesUntilTheyEnd(t *testing.T) {
	var l Broadcaster
	l.Notify() // nobody listens
	ctx, end := context.WithCancel(t.Context())
	busy, other := l.Subscribe(ctx), l.Subscribe(t.Context())
	l.Notify()
	l.Notify()
	g := NewWithT(t)
	g.Expect(busy).To(Receive())
	g.Expect(busy).NotTo(Receive(), "two changes that nobody waited for were told twice")
	g.Expect(other).To(Receive())
	end()
	g.Eventually(func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.subscribers)
	}).WithTimeout(time.Minute).Should(Equal(1))
}
