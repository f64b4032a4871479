package integration

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

const (
	maxBalanced = 256 // connections
	dialTimeout = 2 * time.Second
)

// balancer stands for a Service: one address before several replicas. It passes
// connections on, each to the next replica that takes it, and looks into none.
type balancer struct {
	listener net.Listener
	free     chan struct{} // one for each connection that there may be
	running  sync.WaitGroup

	mu      sync.Mutex
	targets []string // addresses of replicas, the next one first
	open    map[net.Conn]struct{}
	closed  bool
}

// balance starts a balancer on an address, which ends with the test.
func balance(t *testing.T, address string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	b := &balancer{listener: l, free: make(chan struct{}, maxBalanced), open: map[net.Conn]struct{}{}}
	b.running.Go(b.serve)
	t.Cleanup(b.close)
	return b
}

// add has a replica get connections.
func (b *balancer) add(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.targets = append(b.targets, target)
}

// drop has a replica get no more connections. Those that it has are its own affair.
func (b *balancer) drop(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, other := range b.targets {
		if other != target {
			left = append(left, other)
		}
	}
	b.targets = left
}

func (b *balancer) close() {
	_ = b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.open {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

func (b *balancer) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.free <- struct{}{}
		b.running.Go(func() {
			defer func() { <-b.free }()
			b.pass(client)
		})
	}
}

// pass copies both ways until either side ends.
func (b *balancer) pass(client net.Conn) {
	if !b.keep(client) {
		return
	}
	defer b.end(client)
	replica := b.dial()
	if replica == nil || !b.keep(replica) {
		return
	}
	defer b.end(replica)
	go func() {
		_, _ = io.Copy(replica, client)
		_ = replica.Close()
	}()
	_, _ = io.Copy(client, replica)
}

// keep remembers a connection, so that it can be closed.
func (b *balancer) keep(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = c.Close()
		return false
	}
	b.open[c] = struct{}{}
	return true
}

func (b *balancer) end(c net.Conn) {
	_ = c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, c)
}

// dial connects to the next replica that takes the connection, nil if none does.
func (b *balancer) dial() net.Conn {
	for _, target := range b.next() {
		if c, err := net.DialTimeout("tcp", target, dialTimeout); err == nil {
			return c
		}
	}
	return nil
}

// next are the replicas in the order in which to try them.
func (b *balancer) next() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	order := append([]string(nil), b.targets...)
	if len(b.targets) > 1 {
		b.targets = append(b.targets[1:len(b.targets):len(b.targets)], b.targets[0])
	}
	return order
}
