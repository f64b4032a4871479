package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minAge and maxAge bound the age of a connection. API servers keep connections as long as there is traffic, and would
	// send no requests to new replicas.
	minAge, maxAge = 60 * time.Second, 120 * time.Second
	// maxRequests bounds the requests of a connection, so that under load new replicas get their share at once.
	maxRequests = 1000
)

// listener adds TLS to connections, bounds their number and counts them.
type listener struct {
	net.Listener
	timeouts
	config  *tls.Config
	metrics *metrics
	options *Options

	open     *connections
	accepted atomic.Uint64
}

func newListener(inner net.Listener, config *tls.Config, t timeouts, open *connections, m *metrics, o *Options) *listener {
	return &listener{Listener: inner, config: config, timeouts: t, metrics: m, options: o, open: open}
}

// Accept waits for a connection within the limits. The connection's own goroutine does the handshake.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		// Counted first, so that drain does not miss a connection that is opened and closed between two checks.
		l.accepted.Add(1)
		c := l.newConn(raw)
		if l.open.add(c) {
			return c, nil
		}
		_ = raw.Close()
	}
}

func (l *listener) newConn(raw net.Conn) *conn {
	now := l.options.Clock.Now()
	age := minAge + time.Duration(l.options.Random(int64(maxAge-minAge)))
	c := &conn{listener: l, from: addressOf(raw), retireAt: now.Add(age)}
	c.Conn = tls.Server(&progressConn{Conn: raw, progress: &c.progress}, l.config)
	c.since.Store(now.UnixNano())
	return c
}

// progressConn records that the first data of a connection has arrived, before the handshake is complete.
type progressConn struct {
	net.Conn
	progress *atomic.Int32
}

func (h *progressConn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 && h.progress.Load() == progressNone {
		h.progress.Store(progressData) // ConnectionState stores after it has read the handshake
	}
	return n, err
}

// addressOf returns the client address of a connection, without the port.
func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// failed counts a failed handshake.
func (l *listener) failed(reason string) {
	l.metrics.handshakeFailed(reason)
	if reason == reasonCertificate {
		l.options.Distrusted()
	}
}

// connKey is the key of the *conn in the context of its requests.
type connKey struct{}

// conn is one TLS connection. It is not a *tls.Conn because net/http would then do the handshake and not report the
// reason of a failure.
type conn struct {
	*tls.Conn
	listener  *listener
	handshake sync.Once
	closeOnce sync.Once

	from     netip.Addr
	excess   bool      // beyond the limit: answered with 503 and closed
	retireAt time.Time // the first answer after it closes the connection
	answered atomic.Int64

	proven, busy atomic.Bool // see connState
	evicted      atomic.Bool // closed because the limit was reached
	progress     atomic.Int32
	hasRequest   atomic.Bool // data has arrived after the handshake
	since        atomic.Int64
}

// connOf returns the connection of a request. It is nil without a listener, as in tests; begin, end, prove, isExcess and
// retire allow that.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// begin and end enclose the processing of a request.
func (c *conn) begin() {
	if c != nil {
		c.busy.Store(true)
	}
}

func (c *conn) end(now time.Time) {
	if c != nil {
		c.since.Store(now.UnixNano())
		c.busy.Store(false)
	}
}

// prove records that the connection has sent a complete request of an authenticated caller.
func (c *conn) prove() {
	if c != nil && !c.proven.Load() {
		c.proven.Store(true)
	}
}

func (c *conn) isExcess() bool { return c != nil && c.excess }

// retire counts an answer and reports whether the connection has reached its maximum age or number of requests.
func (c *conn) retire(now time.Time) bool {
	return c != nil && (c.answered.Add(1) >= maxRequests || !now.Before(c.retireAt))
}

// ConnectionState does the handshake first: net/http calls it before it reads the first request.
func (c *conn) ConnectionState() tls.ConnectionState {
	c.handshake.Do(func() {
		_ = c.SetDeadline(time.Now().Add(c.listener.handshakeTimeout))
		// The deadline above bounds it, and closing the connection ends it.
		if err := c.HandshakeContext(context.Background()); err != nil {
			if !c.evicted.Load() {
				c.listener.failed(handshakeFailure(err))
			}
			_ = c.Close()
			return
		}
		c.progress.Store(progressHandshake)
		_ = c.SetDeadline(time.Time{})
	})
	return c.Conn.ConnectionState()
}

// SetReadDeadline sets the idle timeout until the first request begins. net/http would start the timeout of the header
// with the handshake. But API servers keep unused connections open, and do not retry a request that is the first on its
// connection: closing the connection at that moment would make the request fail.
func (c *conn) SetReadDeadline(t time.Time) error {
	if !c.hasRequest.Load() && !t.IsZero() {
		t = time.Now().Add(c.listener.idleTimeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// Read starts the timeout of the first header with its first byte. net/http does that for later headers.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.hasRequest.Load() {
		c.hasRequest.Store(true)
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.listener.headerTimeout))
	}
	return n, err
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closeOnce.Do(func() { c.listener.open.remove(c) })
	return err
}

// The reasons of failed handshakes, as values of a metric label.
const (
	reasonCertificate = "bad_certificate" // the client does not trust the serving certificate
	reasonAlert       = "alert"           // the client ended the handshake for another reason
	reasonNotTLS      = "not_tls"
	reasonTimeout     = "timeout"
	reasonClosed      = "closed"
	reasonOther       = "other" // no common version, no certificate to serve, ...
)

func handshakeReasons() []string {
	return []string{reasonCertificate, reasonAlert, reasonNotTLS, reasonTimeout, reasonClosed, reasonOther}
}

// handshakeFailure returns the reason of a failed handshake.
func handshakeFailure(err error) string {
	var notTLS tls.RecordHeaderError
	var network net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &notTLS):
		return reasonNotTLS
	case errors.As(err, &network) && network.Timeout():
		return reasonTimeout
	case errors.As(err, &op) && op.Op == "remote error":
		return alertReason(op.Err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), op != nil:
		return reasonClosed
	}
	return reasonOther
}

// alertReason returns the reason of a TLS alert. The type of received alerts is not exported by crypto/tls, so their
// texts are compared with those of the exported type.
func alertReason(alert error) string {
	const badCertificate, unsupported, revoked, expired, unknown, unknownCA = 42, 43, 44, 45, 46, 48
	for _, code := range []tls.AlertError{badCertificate, unsupported, revoked, expired, unknown, unknownCA} {
		if alert.Error() == code.Error() {
			return reasonCertificate
		}
	}
	return reasonAlert
}
