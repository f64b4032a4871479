package options

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CertificateName is the name of the Certificate that Ostiary writes for
// cert-manager, and of the Secret that cert-manager writes.
const CertificateName = "ostiary-certificate"

// The minimum values that cert-manager accepts in a Certificate.
const (
	minCertificateLife = time.Hour
	minRenewBefore     = 5 * time.Minute
)

// IssuerReference names a cert-manager issuer.
type IssuerReference struct{ Group, Kind, Name string }

// Issuer returns the cert-manager issuer that signs the serving certificate. ok is
// false if none is set.
func (o *Options) Issuer() (ref IssuerReference, ok bool, err error) {
	if o.CertManagerIssuer == "" {
		return IssuerReference{}, false, nil
	}
	ref = IssuerReference{Group: "cert-manager.io", Kind: "Issuer", Name: o.CertManagerIssuer}
	if kind, name, found := strings.Cut(o.CertManagerIssuer, "/"); found {
		ref.Kind, ref.Name = kind, name
		if kind, group, found := strings.Cut(kind, "."); found {
			ref.Kind, ref.Group = kind, group
		}
	}
	isKind := ref.Kind != "" && strings.ToUpper(ref.Kind[:1]) == ref.Kind[:1] && len(validation.IsDNS1035Label(strings.ToLower(ref.Kind))) == 0
	if !isKind || len(validation.IsDNS1123Subdomain(ref.Group)) > 0 || len(validation.IsDNS1123Subdomain(ref.Name)) > 0 {
		return IssuerReference{}, false, fmt.Errorf("write Issuer/name, ClusterIssuer/name, or Kind.group/name for an external issuer")
	}
	return ref, true, nil
}

// ExternalCertificate reports whether Ostiary does not issue the serving certificate.
func (o *Options) ExternalCertificate() bool {
	return o.CertManagerIssuer != "" || o.CertificateSecret != ""
}

func (o *Options) validateSource() field.ErrorList {
	issuer, secret := field.NewPath("--cert-manager-issuer"), field.NewPath("--certificate-secret")
	if o.CertManagerIssuer != "" && o.CertificateSecret != "" {
		return field.ErrorList{field.Forbidden(secret, "give either --cert-manager-issuer or --certificate-secret, not both")}
	}
	if _, ok, err := o.Issuer(); err != nil {
		return field.ErrorList{field.Invalid(issuer, o.CertManagerIssuer, err.Error())}
	} else if ok {
		return o.validateRequest()
	}
	if o.CertificateSecret == "" {
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(o.CertificateSecret); len(problems) > 0 {
		return field.ErrorList{field.Invalid(secret, o.CertificateSecret, "give the name of a Secret: "+strings.Join(problems, ", "))}
	}
	if slices.Contains(ownSecrets(), o.CertificateSecret) {
		return field.ErrorList{field.Invalid(secret, o.CertificateSecret, "give a Secret of its own: Ostiary writes this one")}
	}
	return nil
}

// validateRequest rejects lifetimes that cert-manager rejects, and certificates that
// would expire before API servers trust a new CA.
func (o *Options) validateRequest() field.ErrorList {
	c := o.Certificates.WithDefaults()
	before := c.LeafLifetime - c.LeafRenewAfter
	switch {
	case c.LeafLifetime < minCertificateLife:
		return field.ErrorList{field.Invalid(field.NewPath("--certificate-lifetime"), c.LeafLifetime.String(), "give at least "+minCertificateLife.String()+": cert-manager issues nothing shorter")}
	case before < minRenewBefore:
		return field.ErrorList{field.Invalid(field.NewPath("--certificate-renew-after"), c.LeafRenewAfter.String(), "give at least "+minRenewBefore.String()+" less than --certificate-lifetime: cert-manager renews no later")}
	case before <= c.Overlap:
		return field.ErrorList{field.Invalid(field.NewPath("--certificate-renew-after"), c.LeafRenewAfter.String(), "leave more than --trust-overlap, "+c.Overlap.String()+", of --certificate-lifetime: the certificate is still served for that time after another CA has issued its successor")}
	}
	return nil
}

// ownSecrets returns the Secrets that Ostiary or cert-manager write.
func ownSecrets() []string {
	return []string{"ostiary-ca", "ostiary-serving", "ostiary-backend-ca", CertificateName}
}
