package backends

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/excerpt"
)

const (
	// probeTimeout bounds one handshake, with all that comes before it.
	probeTimeout = 5 * time.Second
	// probeEvery is how long after a handshake that succeeded there is another,
	// and probeAgain after one that failed.
	probeEvery = 30 * time.Second
	probeAgain = 5 * time.Second
	// maxProbes is how many handshakes there are at a time.
	maxProbes = 16
	// maxFailures is how many handshakes in a row have to fail until a backend
	// that was reachable counts as unreachable.
	maxFailures = 2
)

// Reasons of the condition Reachable.
const (
	// ReasonHandshake means that a TLS handshake succeeded.
	ReasonHandshake = "Handshake"
	// ReasonUnreachable means that it failed.
	ReasonUnreachable = "Unreachable"
	// ReasonProbing means that none has ended yet.
	ReasonProbing = "Probing"
)

// reach is what is known of a backend's being reachable.
type reach struct {
	known, ok bool
	message   string
	failures  int
	due       time.Time // zero is at once
	busy      bool
	epoch     int // counts what makes handshakes under way worthless
}

// again asks for a handshake at once. What was known stays until it is done.
func (r *reach) again() {
	r.due = time.Time{}
	r.busy = false
	r.epoch++
}

// ended takes note of a handshake, and reports whether that is news.
func (r *reach) ended(target string, err error, now time.Time) bool {
	before := *r
	r.busy = false
	if err == nil {
		r.known, r.ok, r.failures, r.due = true, true, 0, now.Add(probeEvery)
		r.message = "TLS handshake with " + target + " succeeded"
	} else {
		r.failures++
		r.due = now.Add(probeAgain)
		if !r.known || !r.ok || r.failures >= maxFailures {
			r.known, r.ok = true, false
			r.message = fmt.Sprintf("TLS handshake with %s failed: %s", target, excerpt.Of(err.Error(), maxProblem))
		}
	}
	return before.known != r.known || before.ok != r.ok || before.message != r.message
}

// probe is one handshake to be made.
type probe struct {
	uid     types.UID
	epoch   int
	backend *v1alpha1.Backend
	bundle  []byte
}

// due are the handshakes to be made now.
func (s *Store) due() []probe {
	var out []probe
	now := s.options.Clock.Now()
	for uid, b := range s.backends {
		if !b.known || b.reach.busy || now.Before(b.reach.due) {
			continue
		}
		if s.probes.busy >= maxProbes {
			break
		}
		s.probes.busy++
		b.reach.busy = true
		out = append(out, probe{uid: uid, epoch: b.reach.epoch, backend: b.policy.Spec.Backend, bundle: b.good})
	}
	return out
}

func (s *Store) probe(ctx context.Context, p probe) {
	target, err := s.probes.handshake(ctx, p.backend, p.bundle)
	if ctx.Err() != nil {
		err = nil // it is the term of leadership that has ended
	}
	s.mu.Lock()
	s.probes.busy--
	b := s.backends[p.uid]
	news := ctx.Err() == nil && b != nil && b.reach.epoch == p.epoch && b.reach.ended(target, err, s.options.Clock.Now())
	s.mu.Unlock()
	if news {
		s.listeners.Tell()
	}
}

// prober makes TLS handshakes as the API server does, and sends nothing.
type prober struct {
	services corev1client.ServicesGetter
	dialer   net.Dialer
	busy     int // under the store's lock
}

func newProber(services corev1client.ServicesGetter) *prober { return &prober{services: services} }

// handshake reports what it was made with, as far as that was found.
func (p *prober) handshake(ctx context.Context, b *v1alpha1.Backend, bundle []byte) (target string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(bundle)
	}
	target, address, err := p.resolve(ctx, b)
	if err != nil {
		return target, err
	}
	if b.Service != nil {
		config.ServerName = b.Service.ServerName()
	} else {
		config.ServerName, _, _ = net.SplitHostPort(address) // resolve has put it together
	}
	conn, err := (&tls.Dialer{NetDialer: &p.dialer, Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return target, explain(ctx, err)
	}
	_ = conn.Close() // all that was wanted has been seen
	return target, nil
}

// resolve finds the address by the API server's own rules.
func (p *prober) resolve(ctx context.Context, b *v1alpha1.Backend) (target, address string, err error) {
	if b.Service == nil {
		u, err := url.Parse(b.URL)
		if err != nil {
			return "the backend", "", errors.New("spec.backend.url is none")
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		address = net.JoinHostPort(u.Hostname(), port)
		return address, address, nil
	}
	s := b.Service
	target = "Service " + s.Namespace + "/" + s.Name
	service, err := p.services.Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return target, "", errors.New("there is no such Service")
	case err != nil:
		return target, "", fmt.Errorf("finding the Service: %w", err)
	}
	host, err := hostOf(service, s.EffectivePort())
	if err != nil {
		return target, "", err
	}
	address = net.JoinHostPort(host, strconv.Itoa(int(s.EffectivePort())))
	return target + " (" + address + ")", address, nil
}

// hostOf follows ResolveCluster in k8s.io/apiserver/pkg/util/proxy, which is
// not called because it comes with the whole of the API server's streaming.
func hostOf(s *corev1.Service, port int32) (string, error) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return s.Spec.ExternalName, nil
	}
	switch {
	case s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone:
		return "", errors.New("the Service is headless, and the API server calls none: give it a cluster IP")
	case !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }):
		return "", fmt.Errorf("the Service has no port %d", port)
	}
	return s.Spec.ClusterIP, nil
}

// explain leaves out what differs from one handshake to the next.
func explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %s", probeTimeout)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		same := *op
		same.Source = nil
		return &same
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return errors.New("its certificate is not signed by a CA of the bundle: x509: certificate signed by unknown authority")
	}
	return err
}
