// Package authentication keeps who may call: the CAs and names of client certificates,
// from a file, and bearer tokens and passwords, from Secrets in Ostiary's own
// namespace. Both are followed without a restart.
package authentication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/internal/authentication"
)

const (
	// pollInterval is how often the file is read. Watches of files miss what happens to
	// the directories and links that Kubernetes mounts.
	pollInterval = 10 * time.Second
	// maxFile bounds what is read of the file.
	maxFile = 64 << 10
)

// Options say who may call. At least one of the ways has to be given.
type Options struct {
	// Client reads the Secrets.
	Client kubernetes.Interface
	// Namespace is the one of the Secrets.
	Namespace string
	// CAFile holds, in PEM, the CAs of client certificates for one of Names.
	CAFile string
	Names  []string
	// TokenSecret and BasicSecret name Secrets with bearer tokens, and with a
	// user and passwords.
	TokenSecret, BasicSecret string
	Clock                    clock.WithTicker
	Log                      logr.Logger
	Registerer               prometheus.Registerer
}

// Authenticator decides who may call. It is a Runnable that runs on every replica.
type Authenticator struct {
	options Options
	sources []*source
	methods atomic.Pointer[[]authentication.Method]
	problem *prometheus.GaugeVec
}

// source is where one way comes from. What was once usable holds until something
// better comes: a file that is half written, or a Secret that is gone, shuts
// nobody out.
type source struct {
	label, name string
	read        func() (authentication.Method, error)
	method      authentication.Method // NotLoaded until there is one
	last        string                // what was wrong, "" if nothing was
	failed      atomic.Pointer[error]
}

var errNoSecret = errors.New("it does not exist or has not been read yet")

// New reads the file. It fails if that cannot be used.
func New(o Options) (*Authenticator, error) {
	g := &Authenticator{options: o, problem: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_webhook_caller_source_problem",
		Help: "1 while a source of accepted credentials (client_ca, token or basic) is invalid; its previous content stays in use.",
	}, []string{"source"})}
	if o.CAFile != "" {
		s := g.add("client_ca", "--client-ca "+o.CAFile, &authentication.Certificates{})
		s.read = g.readCA
		if _, err := s.read(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if o.TokenSecret != "" {
		g.add("token", g.secret(o.TokenSecret), &authentication.Tokens{})
	}
	if o.BasicSecret != "" {
		g.add("basic", g.secret(o.BasicSecret), &authentication.Passwords{})
	}
	if len(g.sources) == 0 {
		return nil, errors.New("deciding who may call: give a CA or a Secret")
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(g.problem); err != nil {
			return nil, fmt.Errorf("registering the metric of callers: %w", err)
		}
	}
	g.refreshAll()
	return g, nil
}

func (g *Authenticator) secret(name string) string {
	return "Secret " + g.options.Namespace + "/" + name
}

// add adds a source that reads nothing yet.
func (g *Authenticator) add(label, name string, way authentication.Method) *source {
	s := &source{label: label, name: name, method: authentication.NotLoaded{Method: way}, last: errNoSecret.Error()}
	s.read = func() (authentication.Method, error) { return nil, errNoSecret }
	g.sources = append(g.sources, s)
	return s
}

// NeedLeaderElection says that every replica decides.
func (g *Authenticator) NeedLeaderElection() bool { return false }

// Start follows the file and the Secrets until ctx ends. It is called once.
func (g *Authenticator) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group wait.Group
	defer group.Wait()
	defer cancel()
	wake := make(chan struct{}, 1)
	for _, s := range g.sources {
		if err := g.follow(ctx, &group, s, wake); err != nil {
			return err
		}
	}
	tick := g.options.Clock.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C():
		}
		g.refreshAll()
	}
}

// follow has a source that is a Secret read from a watch of it.
func (g *Authenticator) follow(ctx context.Context, group *wait.Group, s *source, wake chan<- struct{}) error {
	var name string
	var parse func(map[string][]byte) (authentication.Method, error)
	switch s.label {
	case "token":
		name, parse = g.options.TokenSecret, func(data map[string][]byte) (authentication.Method, error) { return authentication.NewTokens(data) }
	case "basic":
		name, parse = g.options.BasicSecret, func(data map[string][]byte) (authentication.Method, error) { return authentication.NewPasswords(data) }
	default:
		return nil
	}
	store, err := certificates.WatchSecret(ctx, group, g.options.Client, g.options.Namespace, name, g.options.Log, wake)
	if err != nil {
		return err
	}
	s.read = func() (authentication.Method, error) {
		obj, _, err := store.GetByKey(g.options.Namespace + "/" + name)
		secret, ok := obj.(*corev1.Secret)
		if err != nil || !ok {
			return nil, errNoSecret
		}
		return parse(secret.Data)
	}
	return nil
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

// withoutPath leaves out what the source's name says.
func withoutPath(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// refreshAll reads every source anew.
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

// report says once what is wrong, and when it is well again.
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
		log.Info("who may call has been read")
	case errors.Is(err, errNoSecret):
		log.Info("the Secret is not there, keeping what was read of it before")
	default:
		log.Error(err, "who may call cannot be read, keeping what was read before")
	}
}

// Authenticate returns nil for a caller that may call. It reads the header and
// the connection of the request alone, and does not wait.
func (g *Authenticator) Authenticate(r *http.Request) error {
	var shown authentication.Credentials
	if r.TLS != nil {
		shown.Certificates = r.TLS.PeerCertificates
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		shown.Token = strings.TrimSpace(token)
	}
	shown.User, shown.Password, _ = r.BasicAuth()
	return authentication.Check(*g.methods.Load(), shown, g.options.Clock.Now())
}

// Ready is an error until every source has been read once.
func (g *Authenticator) Ready() error {
	if g == nil { // everybody may call
		return nil
	}
	for _, s := range g.sources {
		if err := s.failed.Load(); err != nil {
			return fmt.Errorf("who may call is not known yet: %s: %w", s.name, *err)
		}
	}
	return nil
}
