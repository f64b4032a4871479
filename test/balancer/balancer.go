// Package balancer replaces a Service in tests: one address in front of several replicas. It
// forwards connections without reading them.
package balancer

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// API servers keep several for each webhook and bundle, for 90 seconds after the last use.
	maxConnections = 8000
	dialTimeout    = 2 * time.Second
)

// Mode is how a target is chosen for a connection.
type Mode int

const (
	// RoundRobin takes one after the other, and the next one when one does not
	// take the connection.
	RoundRobin Mode = iota
	// Random takes any, once, as kube-proxy does: who has just died still gets
	// connections until it is dropped.
	Random
)

// Balancer is running from Listen to Close. Its methods may be used concurrently.
type Balancer struct {
	mode     Mode
	listener net.Listener
	free     chan struct{} // one for each connection that there may be
	running  sync.WaitGroup

	mu      sync.Mutex
	targets []string // the next one first
	open    map[net.Conn]struct{}
	held    map[string]chan struct{}
	closed  bool
}

// Listen starts a balancer on an address.
func Listen(address string, mode Mode) (*Balancer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("starting a balancer: %w", err)
	}
	b := &Balancer{
		mode: mode, listener: l, free: make(chan struct{}, maxConnections),
		open: map[net.Conn]struct{}{}, held: map[string]chan struct{}{},
	}
	b.running.Go(b.serve)
	return b, nil
}

// Address is where it listens.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Add has a target get connections.
func (b *Balancer) Add(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.targets, target) {
		b.targets = append(b.targets, target)
	}
}

// Drop has a target get no more connections. Those that it has are its own affair.
func (b *Balancer) Drop(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.targets = slices.DeleteFunc(slices.Clone(b.targets), func(other string) bool { return other == target })
}

// Has reports whether a target gets connections.
func (b *Balancer) Has(target string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.targets, target)
}

// Hold lets nothing through to or from a target, and breaks nothing off: the
// network in between is gone. Release lets everything through again.
func (b *Balancer) Hold(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[target] == nil {
		b.held[target] = make(chan struct{})
	}
}

// Release ends a Hold.
func (b *Balancer) Release(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.held[target]; c != nil {
		close(c)
		delete(b.held, target)
	}
}

// Reset breaks off every connection, as a firewall that forgets them would.
func (b *Balancer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// Close ends it and all connections.
func (b *Balancer) Close() {
	_ = b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.open {
		_ = c.Close()
	}
	for target, c := range b.held {
		close(c)
		delete(b.held, target)
	}
	b.mu.Unlock()
	b.running.Wait()
}

func (b *Balancer) serve() {
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
func (b *Balancer) pass(client net.Conn) {
	if !b.keep(client) {
		return
	}
	defer b.end(client)
	replica, target := b.dial()
	if replica == nil || !b.keep(replica) {
		return
	}
	defer b.end(replica)
	go func() {
		b.copy(replica, client, target)
		_ = replica.Close()
	}()
	b.copy(client, replica, target)
}

func (b *Balancer) copy(to, from net.Conn, target string) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		b.await(target)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if tcp, ok := to.(*net.TCPConn); ok && !errors.Is(err, io.EOF) {
				_ = tcp.SetLinger(0) // a reset is passed on as one
			}
			return
		}
	}
}

// await returns when nothing holds the target.
func (b *Balancer) await(target string) {
	b.mu.Lock()
	held := b.held[target]
	b.mu.Unlock()
	if held != nil {
		<-held
	}
}

// keep remembers a connection, so that it can be closed.
func (b *Balancer) keep(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = c.Close()
		return false
	}
	b.open[c] = struct{}{}
	return true
}

func (b *Balancer) end(c net.Conn) {
	_ = c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, c)
}

// dial connects to a replica; nil if none takes the connection.
func (b *Balancer) dial() (net.Conn, string) {
	for _, target := range b.next() {
		b.await(target)
		if c, err := net.DialTimeout("tcp", target, dialTimeout); err == nil {
			return c, target
		}
	}
	return nil, ""
}

// next are the replicas to try, in this order.
func (b *Balancer) next() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.targets) == 0:
		return nil
	case b.mode == Random:
		return []string{b.targets[rand.IntN(len(b.targets))]}
	}
	order := slices.Clone(b.targets)
	b.targets = append(slices.Clone(b.targets[1:]), b.targets[0])
	return order
}
