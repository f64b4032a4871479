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
	// probeTimeout bounds one probe, including the lookup of the Service.
	probeTimeout = 5 * time.Second
	// probeInterval follows a successful handshake, probeRetryInterval a failed one.
	probeInterval      = 30 * time.Second
	probeRetryInterval = 5 * time.Second
	// maxProbes is the maximum number of concurrent handshakes.
	maxProbes = 16
	// maxFailures is the number of consecutive failures after which a reachable
	// backend is reported as unreachable.
	maxFailures = 2
)

// Reasons of the condition Reachable.
const (
	// ReasonHandshake means that a TLS handshake succeeded.
	ReasonHandshake = "Reachable"
	// ReasonUnreachable means that the connection failed or timed out.
	ReasonUnreachable = "Unreachable"
	// ReasonNotTrusted means that the CA bundle does not verify the certificate.
	ReasonNotTrusted = "CertificateNotTrusted"
	// ReasonUnexpectedAnswer means that the server does not complete the handshake.
	ReasonUnexpectedAnswer = "UnexpectedAnswer"
	// ReasonProbing means that no handshake has completed yet.
	ReasonProbing = "Pending"
)

// reachability is the result of the probes of a backend.
type reachability struct {
	known, ok bool
	reason    string
	failures  int
	due       time.Time // zero is immediately
	busy      bool
	epoch     int // handshakes of earlier epochs are ignored
}

// restart forgets earlier results and requests an immediate handshake, because the
// backend is at another address, has another name or needs another CA.
func (r *reachability) restart() { *r = reachability{epoch: r.epoch + 1} }

// ended records a handshake and reports whether the result has changed.
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

// probe is one handshake.
type probe struct {
	uid     types.UID
	epoch   int
	backend *v1alpha1.Backend
	bundle  []byte
}

// due returns the handshakes to start now.
func (s *Store) due() []probe {
	var out []probe
	now := time.Now()
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
	changed := ctx.Err() == nil && b != nil && b.reach.epoch == p.epoch && b.reach.ended(reason, time.Now())
	s.mu.Unlock()
	if changed {
		s.listeners.Notify()
	}
}

// prober performs TLS handshakes like the API server, without sending data.
type prober struct {
	services corev1client.ServicesGetter
	dialer   net.Dialer
	busy     int // under the store's lock
}

func newProber(services corev1client.ServicesGetter, rule egress.Rule) *prober {
	return &prober{services: services, dialer: net.Dialer{Control: rule.Control}}
}

// handshake returns only a reason. Addresses or network errors would let authors
// of policies scan the network.
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
		config.ServerName, _, _ = net.SplitHostPort(address) // resolve joined it
	}
	conn, err := p.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return ReasonUnreachable
	}
	defer conn.Close() // the handshake is the result
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

// resolve returns the address like the API server does.
func (p *prober) resolve(ctx context.Context, b *v1alpha1.Backend) (string, error) {
	if b.Service == nil {
		u, err := url.Parse(b.URL)
		if err != nil {
			return "", errors.New("spec.backend.url is not a URL")
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

// hostOf follows ResolveCluster in k8s.io/apiserver/pkg/util/proxy. Importing that
// package adds the API server's streaming code.
func hostOf(s *corev1.Service, port int32) (string, error) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return s.Spec.ExternalName, nil
	}
	switch {
	case s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone:
		return "", errors.New("the Service is headless, which the API server does not support: assign a cluster IP")
	case !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }):
		return "", fmt.Errorf("the Service has no port %d", port)
	}
	return s.Spec.ClusterIP, nil
}
