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

// Source is where the leaf comes from if Ostiary does not issue it itself.
type Source struct {
	// Secret is the name of the one that somebody else writes: tls.crt, tls.key,
	// and ca.crt with what they are verified with. Ostiary only reads it.
	Secret string
	// Request asks cert-manager to write it; nil where whoever writes it needs
	// not be asked.
	Request *Request
}

// sourceReason says in one word what somebody else has to mend. What is wrong
// with a certificate that is there has a [pki.Reason].
type sourceReason string

const (
	reasonMissing      sourceReason = "missing"
	reasonForbidden    sourceReason = "forbidden"
	reasonNotInstalled sourceReason = "not_installed"
	reasonRefused      sourceReason = "refused"
	reasonIssuing      sourceReason = "issuing"
	reasonFailed       sourceReason = "failed"
	reasonExpiring     sourceReason = "expiring"
)

// sourceReasons are all values of the metric's label.
func sourceReasons() []string {
	out := []string{
		string(reasonMissing), string(reasonForbidden), string(reasonNotInstalled), string(reasonRefused),
		string(reasonIssuing), string(reasonFailed), string(reasonExpiring),
	}
	for _, r := range pki.Reasons() {
		if r != pki.ReasonEpoch {
			out = append(out, string(r))
		}
	}
	return out
}

// sourceError is what somebody else has to mend, and how.
type sourceError struct {
	reason sourceReason
	text   string
}

// Error implements error.
func (e *sourceError) Error() string { return e.text }

// sourceInterval is how soon to look again at what somebody else has to mend, where
// nothing tells of it.
const sourceInterval = 5 * time.Second

// readExternal reads what somebody else issues; nil where nobody else does. The second
// result is what keeps them from issuing more, an error only that of the API
// server.
func (k *Rotator) readExternal(ctx context.Context) (*pki.ExternalCertificate, *sourceError, error) {
	source := k.options.Source
	if source == nil {
		return nil, nil, nil
	}
	var hindrance *sourceError
	if source.Request != nil {
		var err error
		if hindrance, err = source.Request.ensure(ctx); err != nil {
			return nil, nil, err
		}
	}
	name := source.Secret
	secret, err := k.get(ctx, name)
	switch {
	case apierrors.IsForbidden(err):
		hindrance = &sourceError{reasonForbidden, fmt.Sprintf("Ostiary may not read Secret %s/%s: let it get, list and watch that Secret", k.options.Namespace, name)}
		return &pki.ExternalCertificate{Err: hindrance}, hindrance, nil
	case err != nil:
		return nil, nil, err
	case secret == nil && hindrance == nil:
		hindrance = &sourceError{reasonMissing, fmt.Sprintf("Secret %s/%s does not exist: %s", k.options.Namespace, name, source.remedy())}
		fallthrough
	case secret == nil:
		return &pki.ExternalCertificate{Err: hindrance}, hindrance, nil
	}
	offer := externalFrom(secret)
	return &offer, hindrance, nil
}

func (s *Source) remedy() string {
	if s.Request != nil {
		return "cert-manager has yet to write it"
	}
	return "write one with tls.crt, tls.key and ca.crt"
}

// externalFrom reads a Secret that somebody else wrote.
func externalFrom(s *corev1.Secret) pki.ExternalCertificate {
	chain, err := pki.ParseExternalCertificates(s.Data[chainField])
	if err != nil {
		return pki.ExternalCertificate{Err: inField(chainField, err)}
	}
	key, err := pki.ParseKey(s.Data[keyField])
	if err != nil {
		return pki.ExternalCertificate{Err: inField(keyField, err)}
	}
	pair, err := pki.NewPair(chain, key)
	if err != nil {
		return pki.ExternalCertificate{Err: inField(keyField, err)}
	}
	roots, err := pki.ParseExternalCertificates(s.Data[bundleField])
	if err != nil {
		return pki.ExternalCertificate{Err: inField(bundleField, err)}
	}
	return pki.ExternalCertificate{Pair: pair, Roots: roots}
}

// sourceState is what was last told about the source.
type sourceState struct {
	reported  string
	blocked   atomic.Pointer[string]
	listeners events.Broadcaster
}

// checkExternal tells what is amiss with the leaf that somebody else issues, once, and
// again when that changes. It reports whether anything is.
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
		log.Info("the certificate that somebody else issues is good again")
	case reason == string(reasonIssuing):
		log.Info("waiting for a certificate that somebody else issues", "reason", text)
		k.sourceEvent(corev1.EventTypeNormal, "CertificateAwaited", reason, text)
	default:
		log.Info("the certificate that somebody else issues has a problem, keeping what is served", "reason", reason, "problem", text)
		k.sourceEvent(corev1.EventTypeWarning, "CertificateProblem", reason, text)
	}
	return text != ""
}

// describe puts what is amiss into words. Why nothing better is issued comes
// before what is wrong with what there is.
func (k *Rotator) describe(f observedSecrets, problem error) (reason, text string) {
	var late *pki.ExpiringError
	switch {
	case f.problem != nil:
		return string(f.problem.reason), f.problem.text
	case problem == nil:
		return "", ""
	case errors.As(problem, &late):
		reason = string(reasonExpiring)
	default:
		reason = string(reasonOf(problem))
	}
	return reason, fmt.Sprintf("Secret %s/%s: %s", k.options.Namespace, k.options.Source.Secret, strings.TrimSpace(problem.Error()))
}

// sourceEvent names the problem as the action too: of events that agree in that,
// the API shows the text of the first alone.
func (k *Rotator) sourceEvent(kind, reason, problem, text string) {
	if k.options.Events == nil {
		return
	}
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: k.options.Namespace, Name: k.options.Source.Secret}
	if k.options.Source.Request != nil {
		about = k.options.Source.Request.reference()
	}
	k.options.Events.Eventf(about, nil, kind, reason, problem, "%s", text)
}

// Blocked is why there is no certificate at all; empty while there is one, or
// where Ostiary issues its own.
func (k *Rotator) Blocked() string {
	if text := k.source.blocked.Load(); text != nil {
		return *text
	}
	return ""
}

// Subscribe gives a channel that receives after each change of Blocked, until
// ctx ends.
func (k *Rotator) Subscribe(ctx context.Context) <-chan struct{} {
	return k.source.listeners.Subscribe(ctx)
}

func (s *sourceState) block(text string) {
	old := s.blocked.Swap(&text)
	if old == nil && text != "" || old != nil && *old != text {
		s.listeners.Notify()
	}
}

// watched are the Secrets whose changes wake the Keeper.
func (o Options) watched() []string {
	names := []string{o.SecretNames.CA, o.SecretNames.Serving}
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
		return errors.New("keeping certificates: give the name of the Secret that somebody else writes")
	case slices.Contains([]string{o.SecretNames.CA, o.SecretNames.Serving}, o.Source.Secret):
		return fmt.Errorf("keeping certificates: Secret %q is Ostiary's own: have the certificate written into another", o.Source.Secret)
	}
	return nil
}
