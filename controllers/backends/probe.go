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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
)

const (
	// probeTimeout bounds one handshake, with all that comes before it.
	probeTimeout = 5 * time.Second
	// probeInterval is how long after a handshake that succeeded there is another,
	// and probeAgain after one that failed.
	probeInterval      = 30 * time.Second
	probeRetryInterval = 5 * time.Second
	// maxProbes is how many handshakes there are at a time.
	maxProbes = 16
	// maxFailures is how many handshakes in a row have to fail until a backend
	// that was reachable counts as unreachable.
	maxFailures = 2
)

// Reasons of the condition Reachable.
const (
	// ReasonHandshake means that a TLS handshake succeeded.
	ReasonHandshake = "Reachable"
	// ReasonUnreachable means that no connection was made, or no answer came.
	ReasonUnreachable = "Unreachable"
	// ReasonNotTrusted means that the CA bundle does not verify the certificate.
	ReasonNotTrusted = "CertificateNotTrusted"
	// ReasonUnexpectedAnswer means that what answers does not complete the handshake.
	ReasonUnexpectedAnswer = "UnexpectedAnswer"
	// ReasonProbing means that none has ended yet.
	ReasonProbing = "Pending"
)

// reachability is what is known of a backend's being reachable.
type reachability struct {
	known, ok bool
	reason    string
	failures  int
	due       time.Time // zero is at once
	busy      bool
	epoch     int // counts what makes handshakes under way worthless
}

// again asks for a handshake at once. What was known stays until it is done.
func (r *reachability) again() {
	r.due = time.Time{}
	r.busy = false
	r.epoch++
}

// ended takes note of a handshake, and reports whether that is news.
func (r *reachability) ended(reason string, now time.Time) bool {
	before := *r
	r.busy = false
	if reason == ReasonHandshake {
		r.known, r.ok, r.failures, r.due = true, true, 0, now.Add(probeInterval)
		r.reason = reason
	} else {
		r.failures++
		r.due = now.Add(probeRetryInterval)
		if !r.known || !r.ok || r.failures >= maxFailures {
			r.known, r.ok, r.reason = true, false, reason
		}
	}
	return before.known != r.known || before.ok != r.ok || before.reason != r.reason
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
	reason := s.probes.handshake(ctx, p.backend, p.bundle)
	s.mu.Lock()
	s.probes.busy--
	b := s.backends[p.uid]
	news := ctx.Err() == nil && b != nil && b.reach.epoch == p.epoch && b.reach.ended(reason, s.options.Clock.Now())
	s.mu.Unlock()
	if news {
		s.listeners.Notify()
	}
}

// prober makes TLS handshakes as the API server does, and sends nothing.
type prober struct {
	services corev1client.ServicesGetter
	dialer   net.Dialer
	busy     int // under the store's lock
}

func newProber(services corev1client.ServicesGetter, rule egress.Rule) *prober {
	return &prober{services: services, dialer: net.Dialer{Control: rule.Control}}
}

// handshake returns a reason, which is all that is reported. Anything more, as
// addresses or errors of the network, would let authors of policies explore it.
func (p *prober) handshake(ctx context.Context, b *v1alpha1.Backend, bundle []byte) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(bundle)
	}
	address, err := p.resolve(ctx, b)
	if err != nil {
		return ReasonUnreachable
	}
	if b.Service != nil {
		config.ServerName = b.Service.ServerName()
	} else {
		config.ServerName, _, _ = net.SplitHostPort(address) // resolve has put it together
	}
	conn, err := p.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return ReasonUnreachable
	}
	defer conn.Close() // all that was wanted has been seen
	var unverified *tls.CertificateVerificationError
	switch err := tls.Client(conn, config).HandshakeContext(ctx); {
	case err == nil:
		return ReasonHandshake
	case ctx.Err() != nil:
		return ReasonUnreachable
	case errors.As(err, &unverified):
		return ReasonNotTrusted
	}
	return ReasonUnexpectedAnswer
}

// resolve finds the address by the API server's own rules.
func (p *prober) resolve(ctx context.Context, b *v1alpha1.Backend) (string, error) {
	if b.Service == nil {
		u, err := url.Parse(b.URL)
		if err != nil {
			return "", errors.New("spec.backend.url is none")
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		return net.JoinHostPort(u.Hostname(), port), nil
	}
	s := b.Service
	service, err := p.services.Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("finding the Service: %w", err)
	}
	host, err := hostOf(service, s.EffectivePort())
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(int(s.EffectivePort()))), nil
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
