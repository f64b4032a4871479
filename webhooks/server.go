package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// idleTimeout is longer than the 90 s after which API servers close idle connections. If the server closed first, a
	// request could arrive on a closing connection, and API servers do not retry it.
	idleTimeout = 180 * time.Second
	// writeTimeout includes the evaluation, which may take up to the longest timeout of a webhook. The handler shortens
	// it when it has an answer.
	writeTimeout   = maxTimeout + answerTimeout
	maxHeaderBytes = 64 << 10
	// shutdownTimeout is the time that requests get to finish after the drain.
	shutdownTimeout = 5 * time.Second
)

// timeouts bound how long a slow or silent client can hold a connection.
type timeouts struct{ handshakeTimeout, headerTimeout, idleTimeout time.Duration }

// Server answers admission reviews over TLS. It is a manager.Runnable that runs on every replica.
type Server struct {
	options Options
	handler *handler
	metrics *metrics
	open    *connections

	timeouts

	serving, draining, unready atomic.Bool
}

var (
	_ manager.Runnable               = (*Server)(nil)
	_ manager.LeaderElectionRunnable = (*Server)(nil)
)

// New returns a server that has not started. It registers the metrics.
func New(o Options) (*Server, error) {
	o.complete()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("configuring the webhook server: %w", err)
	}
	m := newMetrics()
	s := &Server{
		options:  o,
		metrics:  m,
		open:     newConnections(o.MaxConnections, m.connectionEvicted),
		timeouts: timeouts{handshakeTimeout: 5 * time.Second, headerTimeout: 5 * time.Second, idleTimeout: idleTimeout},
	}
	s.handler = newHandler(o, m, &s.draining)
	if err := m.register(o.Registerer, s.gauges()...); err != nil {
		return nil, fmt.Errorf("registering the metrics of the webhook server: %w", err)
	}
	return s, nil
}

// NeedLeaderElection returns false: every replica answers requests.
func (s *Server) NeedLeaderElection() bool { return false }

// Handler returns the HTTP handler of the server, without TLS and the limit on connections.
func (s *Server) Handler() http.Handler { return s.handler }

// Ready is a health check. It returns nil while the server accepts connections, up to the middle of a drain. Kubernetes
// sends connections to terminating Pods only if they are ready and there are no others: if all replicas are deleted at
// once, they answer until others do. If only the container ends, unreadiness keeps new connections away.
func (s *Server) Ready(*http.Request) error {
	switch {
	case s.unready.Load():
		return errors.New("the webhook server is draining")
	case !s.serving.Load():
		return errors.New("the webhook server has not started")
	}
	return nil
}

// Start serves until ctx ends, then drains, and returns. It can be called once.
func (s *Server) Start(ctx context.Context) error {
	inner, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("listening for admission reviews: %w", err)
	}
	l := newListener(inner, s.tlsConfig(), s.timeouts, s.open, s.metrics, &s.options)
	server := s.httpServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.serving.Store(true)
	s.options.Log.Info("Serving admission reviews", "address", l.Addr().String())

	select {
	case err := <-served:
		return fmt.Errorf("serving admission reviews: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.options.Log.Info("Draining connections", "open", s.open.count.Load())
	err = s.drain(l, served)
	s.unready.Store(true)
	if err != nil {
		return fmt.Errorf("serving admission reviews while draining: %w", err)
	}
	s.options.Log.Info("Drained connections", "open", s.open.count.Load())
	return shutdown(server)
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if s.options.Listener != nil {
		return s.options.Listener, nil
	}
	return listen(ctx, s.options.Address)
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{Control: deferAccept}
	return config.Listen(ctx, "tcp", address)
}

// tlsConfig disables session tickets, so that every new connection verifies the current certificate; API servers do not
// resume sessions. It does not offer HTTP/2, which API servers do not use with webhooks.
func (s *Server) tlsConfig() *tls.Config {
	clients := tls.NoClientCert
	if s.options.Authenticator != nil {
		clients = tls.RequestClientCert // the Authenticator verifies it
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             clients,
		NextProtos:             []string{"http/1.1"},
		GetCertificate:         s.options.GetCertificate,
		SessionTicketsDisabled: true,
	}
}

func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:                      s.handler,
		ReadHeaderTimeout:            s.headerTimeout,
		IdleTimeout:                  s.idleTimeout,
		WriteTimeout:                 writeTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(newErrorLog(s.options.Log), "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

// drain returns when no connection has been open for the quiet period, but not before Min nor after Max.
func (s *Server) drain(l *listener, served <-chan error) error {
	d := s.options.Drain
	began := time.Now()
	quietSince, accepted := began, l.accepted.Load()
	tick := time.NewTicker(max(d.Quiet/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case err := <-served:
			return err
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(began) >= d.Max/2 {
			s.unready.Store(true)
		}
		if n := l.accepted.Load(); n != accepted || l.open.count.Load() > 0 {
			quietSince, accepted = now, n
		}
		if now.Sub(began) >= d.Max || now.Sub(began) >= d.Min && now.Sub(quietSince) >= d.Quiet {
			return nil
		}
	}
}

// shutdown waits for pending requests up to shutdownTimeout, and then closes every connection.
func shutdown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		if err := server.Close(); err != nil {
			return fmt.Errorf("closing the webhook server: %w", err)
		}
	}
	return nil
}

// errorLog forwards the log of net/http at verbosity 1, one line a second, because clients can cause any number of lines.
type errorLog struct {
	log   logr.Logger
	limit *rate.Limiter
}

func newErrorLog(log logr.Logger) *errorLog {
	return &errorLog{log: log.V(1), limit: rate.NewLimiter(1, 10)}
}

func (e *errorLog) Write(line []byte) (int, error) {
	if e.log.Enabled() && e.limit.Allow() {
		e.log.Info("Connection failed", "reason", oneLine(strings.TrimSpace(string(line))))
	}
	return len(line), nil
}
