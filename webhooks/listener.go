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
	// minAge and maxAge bound how long a connection is used. API servers keep theirs as long as there is traffic; they
	// would send nothing to replicas that came later.
	minAge, maxAge = 60 * time.Second, 120 * time.Second
	// maxRequests bounds it too, so that under load, when new replicas come, they get their part at once.
	maxRequests = 1000
)

// listener adds TLS to connections, and bounds and counts them.
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

// Accept waits for a connection that there is a place for. The handshake is left to the connection's own goroutine.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		// In this order, a drain that sees the connection closed again has also seen that it came.
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
	c.Conn = tls.Server(&hearing{Conn: raw, progress: &c.progress}, l.config)
	c.since.Store(now.UnixNano())
	return c
}

// hearing notes that something has come, which is before the handshake is over.
type hearing struct {
	net.Conn
	progress *atomic.Int32
}

func (h *hearing) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 && h.progress.Load() == stateNothing {
		h.progress.Store(stateBegun) // nobody stores anything else before the handshake has been read
	}
	return n, err
}

// addressOf is who a connection comes from, without the port.
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

// conn is one TLS connection. It is not a *tls.Conn because net/http would then do the handshake, and keep the
// reason of a failure to itself.
type conn struct {
	*tls.Conn
	listener  *listener
	handshake sync.Once
	closeOnce sync.Once

	from     netip.Addr
	excess   bool      // beyond the limit: to be answered with 503 and closed
	retireAt time.Time // when the next answer closes the connection
	answered atomic.Int64

	proven, busy, evicted atomic.Bool // see standing, but for evicted: room was needed
	progress              atomic.Int32
	spoken                atomic.Bool // something has come after the handshake
	since                 atomic.Int64
}

// connOf is the connection that a request has come on. It is nil where there is no listener, as in tests; the methods
// that answering uses allow that.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// begin and end enclose the answering of a request.
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

// prove notes that a whole request has come, of somebody who may call.
func (c *conn) prove() {
	if c != nil && !c.proven.Load() {
		c.proven.Store(true)
	}
}

func (c *conn) tooMany() bool { return c != nil && c.excess }

// retire counts an answer and reports whether the connection has served long enough.
func (c *conn) retire(now time.Time) bool {
	return c != nil && (c.answered.Add(1) >= maxRequests || !now.Before(c.retireAt))
}

// ConnectionState does the handshake first: net/http asks for the state before it reads the first request.
func (c *conn) ConnectionState() tls.ConnectionState {
	c.handshake.Do(func() {
		_ = c.SetDeadline(time.Now().Add(c.listener.handshakeTimeout))
		// The deadline above ends it, and closing the connection does.
		if err := c.HandshakeContext(context.Background()); err != nil {
			if !c.evicted.Load() {
				c.listener.failed(handshakeFailure(err))
			}
			_ = c.Close()
			return
		}
		c.progress.Store(stateHandshake)
		_ = c.SetDeadline(time.Time{})
	})
	return c.Conn.ConnectionState()
}

// SetReadDeadline gives a connection on which nothing has come yet the time of an idle one. net/http would count the
// time for a request's header from the handshake on, but API servers keep connections that they opened and did not
// need, and a request that is the first on one and meets its end is not sent again: it fails.
func (c *conn) SetReadDeadline(t time.Time) error {
	if !c.spoken.Load() && !t.IsZero() {
		t = time.Now().Add(c.listener.idleTimeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// Read has the time for the first header begin with its first byte. For those that follow net/http does that.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.spoken.Load() {
		c.spoken.Store(true)
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.listener.headerTimeout))
	}
	return n, err
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closeOnce.Do(func() { c.listener.open.remove(c) })
	return err
}

// The reasons for which handshakes fail, as values of a metric's label.
const (
	reasonCertificate = "bad_certificate" // the client does not trust what we serve
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

// alertReason tells alerts about our certificate from others. Alerts have a type of their own that crypto/tls does not
// export; their texts are those of the exported type.
func alertReason(alert error) string {
	const badCertificate, unsupported, revoked, expired, unknown, unknownCA = 42, 43, 44, 45, 46, 48
	for _, code := range []tls.AlertError{badCertificate, unsupported, revoked, expired, unknown, unknownCA} {
		if alert.Error() == code.Error() {
			return reasonCertificate
		}
	}
	return reasonAlert
}
