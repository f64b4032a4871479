package certificates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/pki"
)

// Source is an external issuer of the serving certificate.
type Source struct {
	// Secret is the name of the Secret that it writes, with tls.crt, tls.key and, in
	// ca.crt, the CA. Ostiary only reads it.
	Secret string
	// Request is the Certificate for cert-manager; nil for other issuers.
	Request *Request
}

// Problems with the external issuer, as metric labels. Problems with the certificate
// itself have a [pki.Reason].
const (
	reasonMissing      = "missing"
	reasonForbidden    = "forbidden"
	reasonNotInstalled = "not_installed"
	reasonRefused      = "refused"
	reasonIssuing      = "issuing"
	reasonFailed       = "failed"
	reasonExpiring     = "expiring"
)

// sourceReasons returns all values of the metric's label.
func sourceReasons() []string {
	out := []string{reasonMissing, reasonForbidden, reasonNotInstalled, reasonRefused, reasonIssuing, reasonFailed, reasonExpiring}
	for _, r := range pki.Reasons() {
		if r != pki.ReasonEpoch {
			out = append(out, string(r))
		}
	}
	return out
}

// sourceError is a problem with the external issuer and how to fix it.
type sourceError struct {
	reason, text string
}

// Error implements error.
func (e *sourceError) Error() string { return e.text }

// sourceInterval is how often to check an external issuer that has a problem.
const sourceInterval = 5 * time.Second

// readExternal reads the external certificate; nil if Ostiary issues its own. The
// second result is the issuer's problem, the error a failure of the API server.
func (k *Rotator) readExternal(ctx context.Context) (*pki.ExternalCertificate, *sourceError, error) {
	source := k.options.Source
	if source == nil {
		return nil, nil, nil
	}
	var problem *sourceError
	if source.Request != nil {
		var err error
		if problem, err = source.Request.ensure(ctx); err != nil {
			return nil, nil, err
		}
	}
	name := source.Secret
	secret, err := k.get(ctx, name)
	switch {
	case apierrors.IsForbidden(err):
		problem = &sourceError{
			reason: reasonForbidden,
			text: fmt.Sprintf("Ostiary may not read Secret %s/%s: grant it get, list and watch on that Secret",
				k.options.Namespace, name),
		}
		return &pki.ExternalCertificate{Err: problem}, problem, nil
	case err != nil:
		return nil, nil, err
	case secret == nil && problem == nil:
		problem = &sourceError{reasonMissing, fmt.Sprintf("Secret %s/%s does not exist: %s", k.options.Namespace, name, source.remedy())}
		fallthrough
	case secret == nil:
		return &pki.ExternalCertificate{Err: problem}, problem, nil
	}
	external := externalFrom(secret)
	return &external, problem, nil
}

func (s *Source) remedy() string {
	if s.Request != nil {
		return "cert-manager has not written it yet"
	}
	return "create it with tls.crt, tls.key and ca.crt"
}

// externalFrom reads the Secret of an external issuer.
func externalFrom(s *corev1.Secret) pki.ExternalCertificate {
	pair, err := readPair(s, pki.ParseExternalCertificates)
	if err != nil {
		return pki.ExternalCertificate{Err: err}
	}
	roots, err := pki.ParseExternalCertificates(s.Data[bundleField])
	if err != nil {
		return pki.ExternalCertificate{Err: inField(bundleField, err)}
	}
	return pki.ExternalCertificate{Pair: pair, Roots: roots}
}

// sourceState is what was last reported about the external issuer.
type sourceState struct {
	reported  string
	blocked   atomic.Pointer[string]
	listeners events.Broadcaster
}

// checkExternal reports a problem with the external certificate once per change.
// It returns whether there is one.
func (k *Rotator) checkExternal(f observedSecrets, seen pki.Observed) bool {
	if seen.External == nil {
		return false
	}
	problem := f.state.ExternalProblem(seen, k.options.ServerNames)
	reason, text := k.describe(f, problem)
	k.metrics.offered(reason, seen.External.Pair.Certificate())
	blocked := ""
	if len(f.state.Serving.Bundle.Roots()) == 0 {
		blocked = text
	}
	k.source.block(blocked)
	if text == k.source.reported {
		return text != ""
	}
	log := k.options.Log.WithValues("namespace", k.options.Namespace, "secret", k.options.Source.Secret)
	switch k.source.reported = text; {
	case text == "":
		log.Info("the external certificate is valid again")
	case reason == reasonIssuing:
		log.Info("waiting for the external certificate", "reason", text)
		k.sourceEvent(corev1.EventTypeNormal, "CertificateAwaited", reason, text)
	default:
		log.Info("the external certificate has a problem, keeping the served one", "reason", reason, "problem", text)
		k.sourceEvent(corev1.EventTypeWarning, "CertificateProblem", reason, text)
	}
	return text != ""
}

// describe returns the problem as a label and a message. Problems of the issuer
// precede those of the certificate.
func (k *Rotator) describe(f observedSecrets, problem error) (reason, text string) {
	var expiring *pki.ExpiringError
	switch {
	case f.problem != nil:
		return f.problem.reason, f.problem.text
	case problem == nil:
		return "", ""
	case errors.As(problem, &expiring):
		reason = reasonExpiring
	default:
		reason = string(reasonOf(problem))
	}
	return reason, fmt.Sprintf("Secret %s/%s: %s", k.options.Namespace, k.options.Source.Secret, strings.TrimSpace(problem.Error()))
}

// sourceEvent records an event. Its action is the problem too: the API merges
// events that differ only in their text.
func (k *Rotator) sourceEvent(kind, reason, problem, text string) {
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: k.options.Namespace, Name: k.options.Source.Secret}
	if k.options.Source.Request != nil {
		about = k.options.Source.Request.reference()
	}
	k.options.Events.Eventf(about, nil, kind, reason, problem, "%s", text)
}

// Blocked returns why there is no certificate at all; "" if there is one or
// Ostiary issues its own.
func (k *Rotator) Blocked() string {
	if text := k.source.blocked.Load(); text != nil {
		return *text
	}
	return ""
}

// Subscribe returns a channel that receives after changes of Blocked, until ctx
// ends.
func (k *Rotator) Subscribe(ctx context.Context) <-chan struct{} {
	return k.source.listeners.Subscribe(ctx)
}

func (s *sourceState) block(text string) {
	old := s.blocked.Swap(&text)
	if old == nil && text != "" || old != nil && *old != text {
		s.listeners.Notify()
	}
}

// watched returns the Secrets whose changes wake the Rotator.
func (o Options) watched() []string {
	names := []string{caName, servingName}
	if o.Source != nil {
		names = append(names, o.Source.Secret)
	}
	return names
}

func (o Options) validateSource() error {
	switch {
	case o.Source == nil:
		return nil
	case o.Source.Secret == "":
		return errors.New("maintaining certificates: the name of the Secret of the external issuer is missing")
	case slices.Contains([]string{caName, servingName}, o.Source.Secret):
		return fmt.Errorf("maintaining certificates: Secret %q is Ostiary's own: configure the issuer to write another Secret", o.Source.Secret)
	}
	return nil
}
