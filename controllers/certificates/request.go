package certificates

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	certmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/pki"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxCommonName is how long X.509 lets a common name be.
	maxCommonName = 64
	// maxExternalText bounds what is repeated of cert-manager's messages.
	maxExternalText = 400
)

// Request keeps a Certificate of cert-manager, which has it write a Secret.
type Request struct {
	// Client writes the Certificate, and Live reads past all caches.
	Client client.Writer
	Live   client.Reader
	// Namespace and Name are those of the Certificate, and of the Secret.
	Namespace, Name string
	// Issuer is who signs.
	Issuer Issuer
	// ServerNames are what the certificate is for.
	ServerNames ServerNames
	// Lifetimes say how long it lives.
	Lifetimes pki.Config

	// applied is the version that the last write led to. If that is not what
	// was asked for, somebody changes what is written, and to write again is of
	// no use.
	applied string
}

// Issuer names an issuer of cert-manager.
type Issuer struct{ Group, Kind, Name string }

// ensure sees to it that the Certificate is there and as it should be. It returns
// what keeps cert-manager from issuing.
func (r *Request) ensure(ctx context.Context) (*sourceError, error) {
	var have certmanager.Certificate
	want := r.certificate()
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(want), &have)
	switch {
	case apierrors.IsNotFound(err):
		return r.apply(ctx, want)
	case err != nil:
		return r.explain(err)
	case !equality.Semantic.DeepDerivative(want.Spec, have.Spec) && have.ResourceVersion != r.applied:
		return r.apply(ctx, want)
	case !equality.Semantic.DeepDerivative(want.Spec.IssuerRef, have.Spec.IssuerRef):
		return &sourceError{reasonRefused, fmt.Sprintf("somebody else changes the issuer of Certificate %s/%s as soon as it is written: find out who, in its managed fields", r.Namespace, r.Name)}, nil
	}
	return r.problem(ctx, &have), nil
}

func (r *Request) certificate() *certmanager.Certificate {
	lifetime := &metav1.Duration{Duration: r.Lifetimes.LeafLifetime}
	c := &certmanager.Certificate{
		TypeMeta:   metav1.TypeMeta{APIVersion: certmanager.SchemeGroupVersion.String(), Kind: certmanager.CertificateKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, Labels: map[string]string{managedByLabel: managedBy}},
		Spec: certmanager.CertificateSpec{
			SecretName:  r.Name,
			IssuerRef:   certmeta.IssuerReference{Group: r.Issuer.Group, Kind: r.Issuer.Kind, Name: r.Issuer.Name},
			Duration:    lifetime,
			RenewBefore: &metav1.Duration{Duration: r.Lifetimes.LeafLifetime - r.Lifetimes.LeafRenewAfter},
			DNSNames:    r.ServerNames.DNS,
			Usages:      []certmanager.KeyUsage{certmanager.UsageDigitalSignature, certmanager.UsageServerAuth},
			PrivateKey: &certmanager.CertificatePrivateKey{
				Algorithm: certmanager.ECDSAKeyAlgorithm, Size: 256, Encoding: certmanager.PKCS8, RotationPolicy: certmanager.RotationPolicyAlways,
			},
		},
	}
	for _, ip := range r.ServerNames.IPs {
		c.Spec.IPAddresses = append(c.Spec.IPAddresses, ip.String())
	}
	// A self-signed certificate is its own issuer, and an issuer needs a name.
	if names := append(append([]string{}, c.Spec.DNSNames...), c.Spec.IPAddresses...); len(names[0]) <= maxCommonName {
		c.Spec.CommonName = names[0]
	}
	return c
}

func (r *Request) apply(ctx context.Context, want *certmanager.Certificate) (*sourceError, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return nil, fmt.Errorf("converting Certificate %s/%s: %w", r.Namespace, r.Name, err)
	}
	delete(fields, "status")
	u := &unstructured.Unstructured{Object: fields}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(managedBy), client.ForceOwnership); err != nil {
		return r.explain(err)
	}
	r.applied = u.GetResourceVersion()
	return &sourceError{reasonIssuing, fmt.Sprintf("Certificate %s/%s has just been written: cert-manager has yet to issue it", r.Namespace, r.Name)}, nil
}

// explain tells what somebody can mend from what may pass by itself.
func (r *Request) explain(err error) (*sourceError, error) {
	about := fmt.Sprintf("Certificate %s/%s", r.Namespace, r.Name)
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return &sourceError{reasonNotInstalled, "the API server knows no Certificate of " + certmanager.SchemeGroupVersion.String() + ": install cert-manager, or take the flag --cert-manager-issuer away"}, nil
	case apierrors.IsForbidden(err):
		return &sourceError{reasonForbidden, "Ostiary may not keep " + about + ": add the component certmanager to what is installed, which grants that: " + singleLine(err.Error())}, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return &sourceError{reasonRefused, "the API server refuses " + about + ", mend the flags: " + singleLine(err.Error())}, nil
	}
	return nil, fmt.Errorf("keeping %s: %w", about, err)
}

func (r *Request) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: certmanager.SchemeGroupVersion.String(), Kind: certmanager.CertificateKind, Namespace: r.Namespace, Name: r.Name}
}

// problem is what cert-manager says that keeps it from issuing; nil if nothing
// does, or it is about to.
func (r *Request) problem(ctx context.Context, c *certmanager.Certificate) *sourceError {
	ready, why := r.state(c, certmanager.CertificateConditionReady)
	issuing, _ := r.state(c, certmanager.CertificateConditionIssuing)
	failed := c.Status.LastFailureTime != nil
	if ready && !failed {
		return nil
	}
	request, final := r.lastRequest(ctx, c)
	var text strings.Builder
	reason := reasonIssuing
	fmt.Fprintf(&text, "Certificate %s/%s", r.Namespace, r.Name)
	switch {
	case failed || final:
		reason = reasonFailed
		fmt.Fprintf(&text, " could not be issued by %s %s", r.Issuer.Kind, r.Issuer.Name)
	case request != "":
		reason = reasonFailed
		fmt.Fprintf(&text, " waits for %s %s", r.Issuer.Kind, r.Issuer.Name)
	case issuing:
		text.WriteString(" is being issued")
	default:
		text.WriteString(" is not ready")
	}
	for _, detail := range []string{why, request} {
		if detail != "" {
			text.WriteString(": " + detail)
		}
	}
	if reason == reasonFailed {
		fmt.Fprintf(&text, "; see `kubectl -n %s describe certificate,certificaterequest`: the issuer has to exist and to be ready", r.Namespace)
	}
	return &sourceError{reason, text.String()}
}

// state is whether a condition is true of the Certificate as it is now, and if
// not, why.
func (r *Request) state(c *certmanager.Certificate, kind certmanager.CertificateConditionType) (ok bool, why string) {
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			ok = condition.Status == certmeta.ConditionTrue
			if kind == certmanager.CertificateConditionReady && condition.ObservedGeneration < c.Generation {
				return false, ""
			}
			if !ok {
				why = singleLine(condition.Message)
			}
		}
	}
	return ok, why
}

// lastRequest is what cert-manager says of the newest request that it made for
// the Certificate, and whether that is its last word. Requests are looked at
// only to explain: an error says as much as none.
func (r *Request) lastRequest(ctx context.Context, c *certmanager.Certificate) (text string, final bool) {
	var list certmanager.CertificateRequestList
	if err := r.Live.List(ctx, &list, client.InNamespace(r.Namespace), client.Limit(maxRequests)); err != nil {
		return "", false
	}
	var last *certmanager.CertificateRequest
	var newest int
	for i := range list.Items {
		item := &list.Items[i]
		revision, _ := strconv.Atoi(item.Annotations[certmanager.CertificateRequestRevisionAnnotationKey])
		if ownedBy(item, c.UID) && revision >= newest {
			last, newest = item, revision
		}
	}
	if last == nil {
		return "", false
	}
	for _, condition := range last.Status.Conditions {
		if condition.Type == certmanager.CertificateRequestConditionReady && condition.Status != certmeta.ConditionTrue {
			final = condition.Reason == certmanager.CertificateRequestReasonFailed || condition.Reason == certmanager.CertificateRequestReasonDenied
			// What has only just been asked for is usually answered in a moment.
			if final || time.Since(last.CreationTimestamp.Time) > requestGrace {
				return singleLine(condition.Message), final
			}
		}
	}
	return "", false
}

const (
	// maxRequests bounds how many requests are looked at.
	maxRequests = 200
	// requestGrace is how long a request may wait before anybody is told why.
	requestGrace = 5 * time.Second
)

func ownedBy(o metav1.Object, uid types.UID) bool {
	for _, owner := range o.GetOwnerReferences() {
		if owner.UID == uid {
			return true
		}
	}
	return false
}

// singleLine puts what somebody else wrote on one line of a bounded length.
func singleLine(text string) string {
	return truncate.String(strings.Join(strings.Fields(text), " "), maxExternalText)
}
