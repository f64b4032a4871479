package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
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
	// spareConnections are accepted beyond the limit, to be told so; further ones wait for one to end.
	spareConnections = 64
)

// listener adds TLS to connections, and bounds and counts them.
type listener struct {
	net.Listener
	config           *tls.Config
	limit            int64
	handshakeTimeout time.Duration
	metrics          *metrics
	distrusted       func()

	slots     chan struct{}
	closed    chan struct{}
	closeOnce sync.Once

	open     atomic.Int64
	accepted atomic.Uint64
}

func newListener(inner net.Listener, config *tls.Config, limit int, handshakeTimeout time.Duration, m *metrics, distrusted func()) *listener {
	return &listener{
		Listener:         inner,
		config:           config,
		limit:            int64(limit),
		handshakeTimeout: handshakeTimeout,
		metrics:          m,
		distrusted:       distrusted,
		slots:            make(chan struct{}, limit+spareConnections),
		closed:           make(chan struct{}),
	}
}

// Accept waits for a free slot and then for a connection. The handshake is left to the connection's own goroutine.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	raw, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	// In this order, a drain that sees the connection closed again has also seen that it came.
	l.accepted.Add(1)
	open := l.open.Add(1)
	return &conn{
		Conn:     tls.Server(raw, l.config),
		listener: l,
		excess:   open > l.limit,
		retireAt: time.Now().Add(minAge + rand.N(maxAge-minAge)), //nolint:gosec // it spreads load and guards nothing
	}, nil
}

// failed counts a failed handshake.
func (l *listener) failed(reason string) {
	l.metrics.handshakeFailed(reason)
	if reason == reasonCertificate {
		l.distrusted()
	}
}

func (l *listener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return l.Listener.Close()
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

	excess   bool      // beyond the limit: to be answered with 503 and closed
	retireAt time.Time // when the next answer closes the connection
	answered atomic.Int64
}

// retire counts an answer and reports whether the connection has served long enough.
func (c *conn) retire(now time.Time) bool {
	return c.answered.Add(1) >= maxRequests || now.After(c.retireAt)
}

// ConnectionState does the handshake first: net/http asks for the state before it reads the first request.
func (c *conn) ConnectionState() tls.ConnectionState {
	c.handshake.Do(func() {
		_ = c.SetDeadline(time.Now().Add(c.listener.handshakeTimeout))
		// The deadline above ends it, and closing the connection does.
		if err := c.HandshakeContext(context.Background()); err != nil {
			c.listener.failed(handshakeFailure(err))
			_ = c.Close()
			return
		}
		_ = c.SetDeadline(time.Time{})
	})
	return c.Conn.ConnectionState()
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closeOnce.Do(func() {
		c.listener.open.Add(-1)
		<-c.listener.slots
	})
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
