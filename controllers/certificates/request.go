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
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxCommonName is the limit of a common name in X.509.
	maxCommonName = 64
	// maxExternalText bounds cert-manager's messages in Ostiary's, in bytes.
	maxExternalText = 400
)

// Request maintains a Certificate of cert-manager.
type Request struct {
	// Client writes the Certificate, and Live reads it without a cache.
	Client client.Writer
	Live   client.Reader
	// Namespace and Name are those of the Certificate and of its Secret.
	Namespace, Name string
	// Issuer signs the certificate.
	Issuer Issuer
	// ServerNames are the names of the certificate.
	ServerNames ServerNames
	// Lifetimes of the certificate.
	Lifetimes pki.Config

	// applied is the resource version after the last write. If that version differs
	// from what was requested, another client reverts the changes, and Ostiary does
	// not write again.
	applied string
}

// Issuer names an issuer of cert-manager.
type Issuer struct{ Group, Kind, Name string }

// ensure creates or updates the Certificate. It returns the problem that prevents
// cert-manager from issuing.
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
		return &sourceError{
			reason: reasonRefused,
			text: fmt.Sprintf("another client changes the issuer of Certificate %s/%s after every write: find that client in "+
				"metadata.managedFields and stop it", r.Namespace, r.Name),
		}, nil
	}
	return r.problem(ctx, &have), nil
}

func (r *Request) certificate() *certmanager.Certificate {
	lifetime := &metav1.Duration{Duration: r.Lifetimes.LeafLifetime}
	c := &certmanager.Certificate{
		TypeMeta: metav1.TypeMeta{APIVersion: certmanager.SchemeGroupVersion.String(), Kind: certmanager.CertificateKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace,
			Name:      r.Name,
			Labels:    map[string]string{registration.LabelManagedBy: registration.ManagedBy},
		},
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
	// The subject of a self-signed certificate is also its issuer and must not be empty.
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
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(registration.ManagedBy), client.ForceOwnership); err != nil {
		return r.explain(err)
	}
	r.applied = u.GetResourceVersion()
	return &sourceError{
		reason: reasonIssuing,
		text: fmt.Sprintf("Certificate %s/%s has just been written: cert-manager has not issued it yet",
			r.Namespace, r.Name),
	}, nil
}

// explain distinguishes problems that need a fix from transient errors.
func (r *Request) explain(err error) (*sourceError, error) {
	about := fmt.Sprintf("Certificate %s/%s", r.Namespace, r.Name)
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return &sourceError{
			reason: reasonNotInstalled,
			text: "the API server has no resource Certificate of " + certmanager.SchemeGroupVersion.String() +
				": install cert-manager, or remove the flag --cert-manager-issuer",
		}, nil
	case apierrors.IsForbidden(err):
		return &sourceError{
			reason: reasonForbidden,
			text: "Ostiary may not write " + about + ": install the component certmanager, which grants this permission: " +
				singleLine(err.Error()),
		}, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return &sourceError{reasonRefused, "the API server rejects " + about + ", correct the flags: " + singleLine(err.Error())}, nil
	}
	return nil, fmt.Errorf("writing %s: %w", about, err)
}

func (r *Request) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: certmanager.SchemeGroupVersion.String(),
		Kind:       certmanager.CertificateKind,
		Namespace:  r.Namespace,
		Name:       r.Name,
	}
}

// problem returns what cert-manager reports as the reason for not issuing; nil if
// it has issued the certificate.
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
		fmt.Fprintf(&text, "; see `kubectl -n %s describe certificate,certificaterequest`: check that the issuer exists and "+
			"is ready", r.Namespace)
	}
	return &sourceError{reason, text.String()}
}

// state returns whether a condition is true for the current generation of the
// Certificate, and if not, its message.
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

// lastRequest returns cert-manager's message about the newest CertificateRequest,
// and whether that request has ended. Requests only explain a problem, so an error
// counts as no message.
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
			// New requests are usually completed within seconds.
			if final || time.Since(last.CreationTimestamp.Time) > requestGrace {
				return singleLine(condition.Message), final
			}
		}
	}
	return "", false
}

const (
	// maxRequests bounds the number of listed requests.
	maxRequests = 200
	// requestGrace is how long a request may be pending before that is reported.
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

// singleLine returns external text on one line of a bounded length.
func singleLine(text string) string {
	return truncate.String(strings.Join(strings.Fields(text), " "), maxExternalText)
}
