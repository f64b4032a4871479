package connections

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tlsConn is one TLS connection. It is not a *tls.Conn because net/http would then do the handshake and not report the
// reason of a failure.
type tlsConn struct {
	*tls.Conn
	state      *Conn
	options    *Options
	handshake  sync.Once
	hasRequest atomic.Bool // data has arrived after the handshake
}

func (c *tlsConn) connection() *Conn { return c.state }

// ConnectionState does the handshake first: net/http calls it before it reads the first request.
func (c *tlsConn) ConnectionState() tls.ConnectionState {
	c.handshake.Do(func() {
		_ = c.SetDeadline(time.Now().Add(c.options.Timeouts.Handshake))
		// The deadline above bounds it, and closing the connection ends it.
		if err := c.HandshakeContext(context.Background()); err != nil {
			if !c.state.evicted.Load() {
				c.options.HandshakeFailed(handshakeFailure(err))
			}
			_ = c.Close()
			return
		}
		c.state.progress.Store(progressHandshake)
		_ = c.SetDeadline(time.Time{})
	})
	return c.Conn.ConnectionState()
}

// SetReadDeadline sets the idle timeout until the first request begins, with KeepUnused. net/http would start the timeout
// of the header with the handshake. But API servers keep unused connections open, and do not retry a request that is the
// first on its connection: closing the connection at that moment would make the request fail.
func (c *tlsConn) SetReadDeadline(t time.Time) error {
	if c.options.KeepUnused && !c.hasRequest.Load() && !t.IsZero() {
		t = time.Now().Add(c.options.Timeouts.Idle)
	}
	return c.Conn.SetReadDeadline(t)
}

// Read starts the timeout of the first header with its first byte, with KeepUnused. net/http does that for later headers.
func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.hasRequest.Load() {
		c.hasRequest.Store(true)
		if c.options.KeepUnused {
			_ = c.Conn.SetReadDeadline(time.Now().Add(c.options.Timeouts.Header))
		}
	}
	return n, err
}

// The reasons of failed handshakes, as values of a metric label.
const (
	ReasonCertificate = "bad_certificate" // the client does not trust the serving certificate
	reasonAlert       = "alert"           // the client ended the handshake for another reason
	reasonNotTLS      = "not_tls"
	reasonTimeout     = "timeout"
	reasonClosed      = "closed"
	reasonOther       = "other" // no common version, no certificate to serve, ...
)

// HandshakeReasons returns the reasons of failed handshakes.
func HandshakeReasons() []string {
	return []string{ReasonCertificate, reasonAlert, reasonNotTLS, reasonTimeout, reasonClosed, reasonOther}
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
			return ReasonCertificate
		}
	}
	return reasonAlert
}
