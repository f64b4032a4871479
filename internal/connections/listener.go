// Package connections bounds the open connections of a port, and the time that slow clients hold them. Every port of the
// manager uses it.
package connections

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// MinAge and MaxAge bound the age at which connections retire. API servers keep connections as long as there is
	// traffic, and would send no requests to new replicas.
	MinAge = 60 * time.Second
	// MaxAge is the upper bound.
	MaxAge = 120 * time.Second
	// maxRequests bounds the requests of a connection, so that under load new replicas get their share at once.
	maxRequests = 1000
)

// Timeouts bound how long a slow or silent client can hold a connection.
type Timeouts struct {
	// Handshake is for the TLS handshake.
	Handshake time.Duration
	// Header is for the header of a request.
	Header time.Duration
	// Read is for a request with its body. Zero: the handler limits the time for the body.
	Read time.Duration
	// Write is for the evaluation of a request and its answer.
	Write time.Duration
	// Idle is for the time between requests.
	Idle time.Duration
}

// Options configure a Listener.
type Options struct {
	// TLS is the configuration of TLS. With nil, connections are not encrypted.
	TLS *tls.Config
	// Timeouts are those of the HTTP server, too.
	Timeouts Timeouts
	// KeepUnused keeps a connection without a request for Timeouts.Idle instead of Timeouts.Header, for clients that open
	// connections in advance.
	KeepUnused bool
	// HandshakeFailed is called with the reason of each failed handshake. It must not block. Nil: not called.
	HandshakeFailed func(reason string)
	// Clock gives the age of connections. Default: the real clock.
	Clock clock.PassiveClock
	// Random returns a number in [0, n). It varies the maximum age of connections. Default: math/rand/v2.
	Random func(n int64) int64
}

// Listener adds TLS to connections, bounds their number and counts them.
type Listener struct {
	net.Listener
	options  Options
	open     *Set
	accepted atomic.Uint64
}

// NewListener returns a listener whose connections are members of open.
func NewListener(inner net.Listener, open *Set, o Options) *Listener {
	if o.HandshakeFailed == nil {
		o.HandshakeFailed = func(string) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Int64N // not for security
	}
	return &Listener{Listener: inner, open: open, options: o}
}

// Accepted returns the number of connections since the start, those that were closed at once included.
func (l *Listener) Accepted() uint64 { return l.accepted.Load() }

// Count returns the number of open connections.
func (l *Listener) Count() int { return l.open.Count() }

// Accept waits for a connection within the limits. The connection's own goroutine does the handshake.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		// Counted first, so that a drain does not miss a connection that is opened and closed between two checks.
		l.accepted.Add(1)
		c := l.newConn(raw)
		if l.open.add(c) {
			return l.served(c), nil
		}
		_ = raw.Close()
	}
}

func (l *Listener) newConn(raw net.Conn) *Conn {
	now := l.options.Clock.Now()
	age := MinAge + time.Duration(l.options.Random(int64(MaxAge-MinAge)))
	c := &Conn{raw: raw, open: l.open, from: addressOf(raw), retireAt: now.Add(age)}
	c.since.Store(now.UnixNano())
	return c
}

// served returns the connection that net/http serves.
func (l *Listener) served(c *Conn) net.Conn {
	plain := &plainConn{Conn: c.raw, state: c}
	if l.options.TLS == nil {
		return plain
	}
	return &tlsConn{Conn: tls.Server(plain, l.options.TLS), state: c, options: &l.options}
}

// addressOf returns the client address of a connection, without the port.
func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Conn is the state of one connection. Its methods allow a nil *Conn, for handlers without a Listener, as in tests.
type Conn struct {
	raw  net.Conn
	open *Set

	from     netip.Addr
	excess   bool      // beyond the limit: answered with 503 and closed
	retireAt time.Time // the first answer after it closes the connection
	answered atomic.Int64

	proven, busy atomic.Bool // see connState
	evicted      atomic.Bool // closed because the limit was reached
	progress     atomic.Int32
	since        atomic.Int64
	closeOnce    sync.Once
}

// connKey is the key of the *Conn in the context of its requests.
type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if served, ok := c.(interface{ connection() *Conn }); ok {
		return context.WithValue(ctx, connKey{}, served.connection())
	}
	return ctx
}

// OfRequest returns the connection of a request, and nil without a Listener.
func OfRequest(r *http.Request) *Conn {
	c, _ := r.Context().Value(connKey{}).(*Conn)
	return c
}

// Begin and End enclose the processing of a request.
func (c *Conn) Begin() {
	if c != nil {
		c.busy.Store(true)
	}
}

// End records that the request has been processed.
func (c *Conn) End(now time.Time) {
	if c != nil {
		c.since.Store(now.UnixNano())
		c.busy.Store(false)
	}
}

// Prove records that the connection has sent a complete request of an authenticated caller.
func (c *Conn) Prove() {
	if c != nil && !c.proven.Load() {
		c.proven.Store(true)
	}
}

// IsExcess reports whether the connection is beyond the limit, so that its requests get 503.
func (c *Conn) IsExcess() bool { return c != nil && c.excess }

// Retire counts an answer and reports whether the connection has reached its maximum age or number of requests.
func (c *Conn) Retire(now time.Time) bool {
	return c != nil && (c.answered.Add(1) >= maxRequests || !now.Before(c.retireAt))
}

// plainConn is a connection below TLS or without it. It records when the first data arrives, before a handshake is
// complete.
type plainConn struct {
	net.Conn
	state *Conn
}

func (c *plainConn) connection() *Conn { return c.state }

// Read implements net.Conn.
func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.state.progress.Load() == progressNone {
		c.state.progress.Store(progressData) // ConnectionState stores after it has read the handshake
	}
	return n, err
}

// Close implements net.Conn.
func (c *plainConn) Close() error {
	err := c.Conn.Close()
	c.state.closeOnce.Do(func() { c.state.open.remove(c.state) })
	return err
}
