// Package authentication authenticates callers of the webhook. It reads the CAs of
// client certificates from a file, and bearer tokens and passwords from Secrets in
// Ostiary's namespace. It picks up changes of both without a restart.
package authentication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/authentication"
)

const (
	// pollInterval is how often the file is read. Watches of files miss changes of
	// the directories and links that Kubernetes mounts.
	pollInterval = 10 * time.Second
	// maxFile bounds the size of the file in bytes.
	maxFile = 64 << 10
)

// Options configures an Authenticator. At least one method is required.
type Options struct {
	// Client reads the Secrets.
	Client kubernetes.Interface
	// Namespace is the namespace of the Secrets.
	Namespace string
	// CAFile is a PEM file with the CAs of client certificates. Names lists the
	// accepted names.
	CAFile string
	Names  []string
	// TokenSecret and BasicSecret name Secrets with bearer tokens, and with a user
	// and passwords.
	TokenSecret, BasicSecret string
	Clock                    clock.WithTicker
	Log                      logr.Logger
	Registerer               prometheus.Registerer
}

// Authenticator authenticates callers. It is a Runnable of every replica.
type Authenticator struct {
	options Options
	sources []*source
	methods atomic.Pointer[[]authentication.Method]
	wake    events.Signal
	problem *prometheus.GaugeVec
}

// source is where one method's credentials come from. If a source becomes invalid
// or is deleted, its last valid content remains in use, so that a half-written
// file locks out no caller.
type source struct {
	label, name string
	read        func() (authentication.Method, error)
	watch       func(context.Context) // runs until the context ends
	method      authentication.Method // NotLoaded until there is one
	last        string                // the last reported problem; "" if there was none
	failed      atomic.Pointer[error]
}

var errNoSecret = errors.New("it does not exist or has not been read yet")

// New returns an Authenticator, or an error if the CA file is invalid.
func New(o Options) (*Authenticator, error) {
	g := &Authenticator{options: o, wake: events.NewSignal(), problem: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_webhook_caller_source_problem",
		Help: "1 while a source of accepted callers (client_ca, token or basic) is missing or invalid. Its last valid content remains in use.",
	}, []string{"source"})}
	if o.CAFile != "" {
		s := g.add("client_ca", "--client-ca "+o.CAFile, &authentication.Certificates{})
		s.read, s.watch = g.readCA, func(context.Context) {}
		if _, err := s.read(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if o.TokenSecret != "" {
		g.addSecret("token", o.TokenSecret, &authentication.Tokens{},
			func(data map[string][]byte) (authentication.Method, error) { return authentication.NewTokens(data) })
	}
	if o.BasicSecret != "" {
		g.addSecret("basic", o.BasicSecret, &authentication.Passwords{},
			func(data map[string][]byte) (authentication.Method, error) { return authentication.NewPasswords(data) })
	}
	if len(g.sources) == 0 {
		return nil, errors.New("configuring authentication: specify a client CA or a Secret")
	}
	if err := o.Registerer.Register(g.problem); err != nil {
		return nil, fmt.Errorf("registering the metrics of authentication: %w", err)
	}
	g.refreshAll()
	return g, nil
}

// add adds a source without credentials.
func (g *Authenticator) add(label, name string, way authentication.Method) *source {
	s := &source{label: label, name: name, method: authentication.NotLoaded{Method: way}, last: errNoSecret.Error()}
	g.sources = append(g.sources, s)
	return s
}

// addSecret adds a source that is a Secret.
func (g *Authenticator) addSecret(label, name string, way authentication.Method,
	parse func(map[string][]byte) (authentication.Method, error)) {
	o := secrets.Object{Kind: secrets.KindSecret, Namespace: g.options.Namespace, Name: name}
	w := secrets.NewWatch(g.options.Client, o, g.options.Log, g.wake.Send)
	s := g.add(label, o.String(), way)
	s.watch = w.Run
	s.read = func() (authentication.Method, error) {
		if secret := w.Secret(); secret != nil {
			return parse(secret.Data)
		}
		return nil, errNoSecret
	}
}

// NeedLeaderElection returns false: every replica authenticates callers.
func (g *Authenticator) NeedLeaderElection() bool { return false }

// Start watches the sources until ctx ends. Call it once.
func (g *Authenticator) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, s := range g.sources {
		group.Go(func() { s.watch(ctx) })
	}
	tick := g.options.Clock.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.wake:
		case <-tick.C():
		}
		g.refreshAll()
	}
}

func (g *Authenticator) readCA() (authentication.Method, error) {
	file, err := os.Open(g.options.CAFile)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	return authentication.NewCertificates(data, g.options.Names, g.options.Clock.Now())
}

// withoutPath removes the path, which is part of the source's name.
func withoutPath(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// refreshAll reads every source.
func (g *Authenticator) refreshAll() {
	ways := make([]authentication.Method, len(g.sources))
	for i, s := range g.sources {
		g.refresh(s)
		ways[i] = s.method
	}
	g.methods.Store(&ways)
}

func (g *Authenticator) refresh(s *source) {
	way, err := s.read()
	_, waiting := s.method.(authentication.NotLoaded)
	var text string
	if err != nil {
		text = err.Error()
	} else {
		s.method = way
	}
	if err != nil && waiting {
		s.failed.Store(&err)
	} else {
		s.failed.Store(nil)
	}
	g.report(s, text, err)
}

// report logs each change of a source's problem once.
func (g *Authenticator) report(s *source, text string, err error) {
	if err != nil {
		g.problem.WithLabelValues(s.label).Set(1)
	} else {
		g.problem.WithLabelValues(s.label).Set(0)
	}
	if text == s.last {
		return
	}
	s.last = text
	log := g.options.Log.WithValues("source", s.name)
	switch {
	case err == nil:
		log.Info("read the accepted callers")
	case errors.Is(err, errNoSecret):
		log.Info("the Secret does not exist, keeping its last content")
	default:
		log.Error(err, "reading the accepted callers failed, keeping the last ones")
	}
}

// Authenticate returns nil for an accepted caller. It reads only the header and
// the connection, and does not block.
func (g *Authenticator) Authenticate(r *http.Request) error {
	var credentials authentication.Credentials
	if r.TLS != nil {
		credentials.Certificates = r.TLS.PeerCertificates
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		credentials.Token = strings.TrimSpace(token)
	}
	credentials.User, credentials.Password, _ = r.BasicAuth()
	return authentication.Check(*g.methods.Load(), credentials, g.options.Clock.Now())
}

// Ready returns an error until every source has been read.
func (g *Authenticator) Ready() error {
	if g == nil { // all callers are accepted
		return nil
	}
	for _, s := range g.sources {
		if err := s.failed.Load(); err != nil {
			return fmt.Errorf("the accepted callers have not been loaded yet: %s: %w", s.name, *err)
		}
	}
	return nil
}
