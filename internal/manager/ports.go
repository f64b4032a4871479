package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/metricsaccess"
	"github.com/ostiary/ostiary/internal/connections"
)

const (
	// maxPortConnections bounds the connections of the ports for metrics and for probes, each. Their clients are few, and a
	// connection takes up to 40 KiB during its TLS handshake.
	maxPortConnections = 512
	// maxScrapes bounds the metrics that are being written at a time. Beyond it, scrapes get 503.
	maxScrapes = 8

	// The headers of these ports contain at most a bearer token.
	maxPortHeaderBytes = 16 << 10
	portTimeout        = 5 * time.Second
	scrapeTimeout      = 30 * time.Second
	idlePortTimeout    = 90 * time.Second
	shutdownTimeout    = 5 * time.Second
)

// port is a port of the manager beside that of the webhook.
type port struct {
	name, address string
	handler       http.Handler
	tls           *tls.Config // nil: HTTP
	write         time.Duration
	keepAlive     bool
}

// server returns a runnable that serves a port. It listens at once, so that an address in use is an error at the start.
// Connections without a request of an authenticated client are closed first when there are too many, the oldest first.
func (p port) server(ctx context.Context, log logr.Logger) (*manager.Server, error) {
	inner, err := connections.Listen(ctx, p.address)
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w", p.name, err)
	}
	log = log.WithName(p.name)
	timeouts := connections.Timeouts{Handshake: portTimeout, Header: portTimeout, Read: portTimeout, Write: p.write, Idle: idlePortTimeout}
	open := connections.NewSet(maxPortConnections, logEvictions(log))
	server := connections.NewServer(whileWithinLimit(p.handler), timeouts, maxPortHeaderBytes, log)
	server.SetKeepAlivesEnabled(p.keepAlive)
	wait := shutdownTimeout
	return &manager.Server{
		Name:            p.name,
		Server:          server,
		Listener:        connections.NewListener(inner, open, connections.Options{TLS: p.tls, Timeouts: timeouts}),
		ShutdownTimeout: &wait,
	}, nil
}

// whileWithinLimit answers requests on connections beyond the limit with 503.
func whileWithinLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connections.OfRequest(r)
		if c.IsExcess() {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many connections", http.StatusServiceUnavailable)
			return
		}
		c.Begin()
		defer func() { c.End(time.Now()) }()
		next.ServeHTTP(w, r)
	})
}

// logEvictions returns a function that logs that connections are closed, at most once in ten seconds: a client can cause
// any number of them.
func logEvictions(log logr.Logger) func(reason string) {
	limit := rate.NewLimiter(rate.Every(10*time.Second), 1)
	return func(reason string) {
		if limit.Allow() {
			log.Info("Too many connections: closing those without a request of an authenticated client", "limit", maxPortConnections, "reason", reason)
		}
	}
}

// serveMetrics serves metrics with the certificate that API servers verify, too, so
// that a scraper verifies it with the same bundle before it sends its token.
func serveMetrics(p process, provider *certificates.Provider) error {
	if p.options.MetricsAddress == "0" {
		return nil
	}
	log := p.log.WithName("metrics")
	handler := promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: maxScrapes})
	served := port{name: "metrics", address: p.options.MetricsAddress, write: scrapeTimeout, keepAlive: true}
	if p.options.MetricsAuth {
		handler = metricsaccess.New(metricsaccess.Options{Client: p.client, Next: handler, Clock: clock.RealClock{}, Log: log})
		served.tls = metricsTLS(provider.GetCertificate)
	}
	mux := http.NewServeMux()
	mux.Handle(metricsaccess.Path, handler)
	served.handler = mux
	return p.addPort(served)
}

func metricsTLS(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"http/1.1"},
		GetCertificate:         get,
		SessionTicketsDisabled: true,
	}
}

// serveProbes serves /healthz and /readyz. Each probe has its own connection, so that no client holds one that it does not
// use.
func serveProbes(p process, checks map[string]func() error) error {
	if p.options.HealthAddress == "0" {
		return nil
	}
	for name, check := range checks {
		checks[name] = onChange(p.log, name, check)
	}
	return p.addPort(port{name: "probes", address: p.options.HealthAddress, handler: probeHandler(checks), write: portTimeout})
}

// probeHandler answers /healthz, and /readyz from checks.
func probeHandler(readiness map[string]func() error) http.Handler {
	ready := map[string]healthz.Checker{}
	for name, check := range readiness {
		ready[name] = func(*http.Request) error { return check() }
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": {"process": healthz.Ping}, "/readyz": ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return mux
}

func (p process) addPort(served port) error {
	server, err := served.server(context.Background(), p.log)
	if err != nil {
		return err
	}
	return p.add(server)
}
