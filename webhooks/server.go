package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ostiary/ostiary/internal/connections"
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

// Server answers admission reviews over TLS. It is a manager.Runnable that runs on every replica.
type Server struct {
	options Options
	handler *handler
	metrics *metrics
	open    *connections.Set

	timeouts connections.Timeouts

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
		open:     connections.NewSet(o.MaxConnections, m.connectionEvicted),
		timeouts: connections.Timeouts{Handshake: 5 * time.Second, Header: 5 * time.Second, Idle: idleTimeout, Write: writeTimeout},
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
	l := connections.NewListener(inner, s.open, s.listenerOptions())
	server := connections.NewServer(s.handler, s.timeouts, maxHeaderBytes, s.options.Log)
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
	s.options.Log.Info("Draining connections", "open", s.open.Count())
	err = s.drain(l, served)
	s.unready.Store(true)
	if err != nil {
		return fmt.Errorf("serving admission reviews while draining: %w", err)
	}
	s.options.Log.Info("Drained connections", "open", s.open.Count())
	return shutdown(server)
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if s.options.Listener != nil {
		return s.options.Listener, nil
	}
	return connections.Listen(ctx, s.options.Address)
}

func (s *Server) listenerOptions() connections.Options {
	return connections.Options{
		TLS:        s.tlsConfig(),
		Timeouts:   s.timeouts,
		KeepUnused: true, // API servers open connections in advance
		HandshakeFailed: func(reason string) {
			s.metrics.handshakeFailed(reason)
			if reason == connections.ReasonCertificate {
				s.options.Distrusted()
			}
		},
		Clock:  s.options.Clock,
		Random: s.options.Random,
	}
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

// drain returns when no connection has been open for the quiet period, but not before Min nor after Max.
func (s *Server) drain(l *connections.Listener, served <-chan error) error {
	d := s.options.Drain
	began := time.Now()
	quietSince, accepted := began, l.Accepted()
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
		if n := l.Accepted(); n != accepted || s.open.Count() > 0 {
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
