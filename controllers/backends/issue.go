package backends

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/pki"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	// issuerName is the Secret of the CA for backends, in Ostiary's namespace.
	issuerName = "ostiary-backend-ca"

	bundleField           = "ca.crt"
	previousField         = "previous.crt"
	crossCertificateField = "cross.crt"
	// lastRequestField is the last handled request for a new CA.
	lastRequestField = "last-request"

	// annotationIssued marks the Secrets with certificates that Ostiary issued.
	// It overwrites no others.
	annotationIssued = "admission.ostiary.dev/issued"

	// issueInterval and issueRetryInterval are the longest and the shortest time
	// between two checks of all certificates.
	issueInterval      = 30 * time.Second
	issueRetryInterval = time.Second

	stepTimeout = 30 * time.Second
)

// certificateOf returns the Secret for the certificate of a backend.
func certificateOf(b *backend) (o secrets.Object, wanted bool) {
	spec := b.policy.Spec.Backend
	if spec.Certificate == nil || spec.Service == nil {
		return secrets.Object{}, false
	}
	return secrets.Object{Kind: secrets.KindSecret, Namespace: spec.Service.Namespace, Name: spec.Certificate.SecretName}, true
}

// certificates returns the Secrets to write, each with the names of the Services
// that share it.
func (s *Store) certificates() map[secrets.Object]pki.Names {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[secrets.Object]pki.Names{}
	for _, b := range s.sorted() {
		if o, wanted := certificateOf(b); wanted && s.watches[o] != nil {
			dns := slices.Concat(out[o].DNS, []string{b.policy.Spec.Backend.Service.ServerName()})
			slices.Sort(dns)
			out[o] = pki.Names{DNS: slices.Compact(dns)}
		}
	}
	return out
}

// issue maintains the certificates until ctx ends.
func (s *Store) issue(ctx context.Context) {
	ctx = secrets.WithoutLogs(ctx)
	for limit := rate.NewLimiter(rate.Every(issueRetryInterval), 1); limit.Wait(ctx) == nil; {
		s.issueAll(ctx)
		timer := time.NewTimer(issueInterval)
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (s *Store) issueAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	wanted := s.certificates()
	if len(wanted) == 0 {
		return
	}
	issued := map[secrets.Object]trust{}
	issuer, problem := s.issuer(ctx, wanted)
	for o, names := range wanted {
		if problem.reason != "" {
			issued[o] = problem
			continue
		}
		issued[o] = s.certificate(ctx, issuer, o, names)
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.issued = issued
	s.mu.Unlock()
	s.wake.Send()
}

// issuer returns the CA. It creates and replaces the CA when necessary.
func (s *Store) issuer(ctx context.Context, wanted map[secrets.Object]pki.Names) (pki.Issuer, trust) {
	at := secrets.Object{Kind: secrets.KindSecret, Namespace: s.options.Namespace, Name: issuerName}
	failed := func(err error) (pki.Issuer, trust) {
		return pki.Issuer{}, refusal(err, at, s.account, "write", "get, update")
	}
	now := time.Now()
	stored, err := secrets.Get(ctx, s.secrets(at.Namespace), at.Name)
	if err != nil {
		return failed(err)
	}
	var have pki.Issuer
	if stored != nil {
		have, err = pki.ReadIssuer(stored.Data[corev1.TLSCertKey], stored.Data[corev1.TLSPrivateKeyKey],
			stored.Data[previousField], stored.Data[crossCertificateField])
		if err != nil {
			s.options.Log.Error(err, "the CA for backends is invalid, replacing it", "secret", at.String())
		}
	}
	next, why := have, have.NeedsRenewal(s.lifetimes, now)
	if requested := certificates.RequestedRotation(stored); why == "" && requested != "" &&
		requested != string(stored.Data[lastRequestField]) {
		why = "a new CA was requested"
	}
	switch {
	case why == "":
		s.remembered = have
		return have, trust{}
	case have.Pair.IsZero() && s.remembered.NeedsRenewal(s.lifetimes, now) == "":
		next = s.remembered
	default:
		roots, known := s.rootsInUse(wanted)
		if !known {
			return pki.Issuer{}, trust{reason: ReasonCAReading, message: "waiting for the Secrets with the issued certificates"}
		}
		if next, err = have.Next(s.lifetimes, roots, now, rand.Reader); err != nil {
			return failed(err)
		}
	}
	if err := s.storeIssuer(ctx, stored, next); err != nil {
		return failed(err)
	}
	s.options.Log.Info("stored the CA for backends", "secret", at.String(), "reason", why, "certificate", next.Pair.String())
	s.remembered = next
	return next, trust{}
}

// rootsInUse returns the roots of the issued certificates. They are unknown while
// a Secret is being read.
func (s *Store) rootsInUse(wanted map[secrets.Object]pki.Names) (roots []*x509.Certificate, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range wanted {
		w := s.watches[o]
		if w == nil || w.Problem() != nil {
			continue
		}
		data, ok := w.Data()
		if !ok {
			return nil, false
		}
		found, err := pki.ParseCertificates(data[bundleField])
		leaf, leafErr := pki.ParseCertificates(data[corev1.TLSCertKey])
		if err != nil || leafErr != nil {
			continue
		}
		for _, root := range found {
			if leaf[0].CheckSignatureFrom(root) == nil {
				roots = append(roots, root)
			}
		}
	}
	return roots, true
}

func (s *Store) storeIssuer(ctx context.Context, old *corev1.Secret, i pki.Issuer) error {
	key, err := i.Pair.KeyPEM()
	if err != nil {
		return err
	}
	data := map[string][]byte{corev1.TLSCertKey: i.Pair.CertificatePEM(), corev1.TLSPrivateKeyKey: key}
	for field, c := range map[string]*x509.Certificate{previousField: i.Previous, crossCertificateField: i.CrossCertificate} {
		if c != nil {
			data[field] = pki.EncodeCertificates(c)
		}
	}
	if requested := certificates.RequestedRotation(old); requested != "" {
		data[lastRequestField] = []byte(requested)
	}
	_, err = secrets.Write(ctx, s.secrets(s.options.Namespace), issuerName, old, data)
	return err
}

func (s *Store) secrets(namespace string) corev1client.SecretInterface {
	return s.options.Client.CoreV1().Secrets(namespace)
}

// certificate returns the certificate in a Secret. It writes the Secret only if
// the watch and then the API server show that it is outdated.
func (s *Store) certificate(ctx context.Context, issuer pki.Issuer, o secrets.Object, names pki.Names) trust {
	s.mu.Lock()
	w := s.watches[o]
	s.mu.Unlock()
	const verbs = "get, list, watch, create, patch"
	if w == nil {
		return trust{reason: ReasonCAReading, message: "waiting for " + o.String()}
	}
	if err := w.Problem(); err != nil {
		return refusal(err, o, s.account, "write a certificate to", verbs)
	}
	seen, known := w.Data()
	if !known {
		return trust{reason: ReasonCAReading, message: o.String() + " is being read"}
	}
	bundle := issuer.Bundle(time.Now()).PEM()
	leaf, why := s.leafIn(issuer, seen, names, bundle)
	if why != "" {
		var err error
		if leaf, err = s.write(ctx, issuer, o, names, bundle); err != nil {
			return refusal(err, o, s.account, "write a certificate to", verbs)
		}
	}
	until := leaf.Certificate().NotAfter.UTC().Format(time.RFC3339)
	return trust{bundle: bundle, reason: ReasonCARead,
		message: fmt.Sprintf("%s holds a certificate for %s, valid until %s", o, strings.Join(names.DNS, ", "), until)}
}

// leafIn returns the leaf in a Secret, and why it has to be written again.
func (s *Store) leafIn(issuer pki.Issuer, data map[string][]byte, names pki.Names, bundle []byte) (pki.Pair, string) {
	leaf, err := pki.ReadPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return pki.Pair{}, err.Error()
	}
	if why := issuer.LeafDue(leaf, names, s.lifetimes, time.Now()); why != "" {
		return pki.Pair{}, why
	}
	if !bytes.Equal(data[bundleField], bundle) {
		return leaf, "the bundle has changed"
	}
	return leaf, ""
}

var errNotOwned = errors.New("it contains data that Ostiary did not write: specify another Secret or empty this one")

// write updates a Secret, unless it has changed since it was read.
func (s *Store) write(ctx context.Context, issuer pki.Issuer, o secrets.Object, names pki.Names, bundle []byte) (pki.Pair, error) {
	live, err := secrets.Get(ctx, s.secrets(o.Namespace), o.Name)
	if err != nil {
		return pki.Pair{}, err
	}
	want := corev1apply.Secret(o.Name, o.Namespace).
		WithLabels(map[string]string{registration.LabelManagedBy: registration.ManagedBy}).
		WithAnnotations(map[string]string{annotationIssued: strings.Join(names.DNS, ",")}).
		WithType(corev1.SecretTypeTLS)
	var data map[string][]byte
	if live != nil {
		if _, ours := live.Annotations[annotationIssued]; !ours && holdsAnything(live.Data) {
			return pki.Pair{}, errNotOwned
		}
		data = live.Data
		want = want.WithType(live.Type).WithResourceVersion(live.ResourceVersion)
	}
	leaf, why := s.leafIn(issuer, data, names, bundle)
	if why == "" {
		return leaf, nil // the watch lags behind
	}
	if leaf.IsZero() {
		if leaf, err = issuer.Issue(names, s.lifetimes, time.Now(), rand.Reader); err != nil {
			return pki.Pair{}, err
		}
	}
	key, err := leaf.KeyPEM()
	if err != nil {
		return pki.Pair{}, err
	}
	want = want.WithData(map[string][]byte{corev1.TLSCertKey: leaf.CertificatePEM(), corev1.TLSPrivateKeyKey: key, bundleField: bundle})
	// RBAC can restrict an apply by name, but not a create.
	_, err = s.secrets(o.Namespace).Apply(ctx, want, metav1.ApplyOptions{FieldManager: registration.FieldManager, Force: true})
	if err != nil {
		return pki.Pair{}, err
	}
	s.options.Log.Info("wrote the certificate of a backend", "secret", o.String(), "names", names.DNS, "reason", why,
		"certificate", leaf.String())
	return leaf, nil
}

func holdsAnything(data map[string][]byte) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(data)), func(value []byte) bool { return len(value) > 0 })
}
