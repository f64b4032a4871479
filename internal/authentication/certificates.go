package authentication

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/ostiary/ostiary/internal/pki"
)

// maxChain bounds the certificates that an unauthenticated caller can have
// verified.
const maxChain = 5

// Certificates accepts callers with a client certificate of a CA and a name.
type Certificates struct {
	roots *x509.CertPool
	names map[string]bool
}

// NewCertificates accepts certificates of the CAs in bundle, in PEM, for one of
// the names: the common name, a DNS name or a URI. Names are compared exactly.
func NewCertificates(bundle []byte, names []string, now time.Time) (*Certificates, error) {
	canonical, err := pki.ExternalBundle(bundle, now)
	if err != nil {
		return nil, err
	}
	cas, err := pki.ParseCertificates(canonical)
	if err != nil {
		return nil, err
	}
	out := &Certificates{roots: x509.NewCertPool(), names: map[string]bool{}}
	for _, ca := range cas {
		if !ca.BasicConstraintsValid || !ca.IsCA {
			return nil, fmt.Errorf("the certificate with serial number %s is not a CA: use the CA that signs the callers' certificates", pki.Serial(ca))
		}
		out.roots.AddCert(ca)
	}
	for _, name := range names {
		out.names[name] = true
	}
	return out, nil
}

func (c *Certificates) String() string { return "a client certificate" }

// Check implements [Method].
func (c *Certificates) Check(credentials Credentials, now time.Time) *RejectedError {
	chain := credentials.Certificates
	switch {
	case len(chain) == 0:
		return noMethod()
	case len(chain) > maxChain:
		return &RejectedError{ReasonCertificate, fmt.Sprintf("the client certificate has %d intermediates, more than %d", len(chain)-1, maxChain-1)}
	}
	intermediates := x509.NewCertPool()
	for _, other := range chain[1:] {
		intermediates.AddCert(other)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return &RejectedError{ReasonCertificate, explain(err)}
	}
	if !c.named(chain[0]) {
		return &RejectedError{ReasonName, "the client certificate has none of the accepted names"}
	}
	return nil
}

// explain omits the text of the error, which describes the CAs.
func explain(err error) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) {
		switch invalid.Reason {
		case x509.Expired:
			return "the client certificate, or an issuer of it, has expired or is not valid yet"
		case x509.IncompatibleUsage:
			return "the client certificate lacks the extended key usage clientAuth"
		}
	}
	return "the client certificate is not signed by an accepted CA"
}

func (c *Certificates) named(leaf *x509.Certificate) bool {
	if c.names[leaf.Subject.CommonName] {
		return true
	}
	for _, name := range leaf.DNSNames {
		if c.names[name] {
			return true
		}
	}
	for _, uri := range leaf.URIs {
		if c.names[uri.String()] {
			return true
		}
	}
	return false
}
