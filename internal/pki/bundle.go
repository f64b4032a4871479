package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// maxRoots is the maximum number of roots in a bundle: the current CA and the
// previous one.
const maxRoots = 2

// Bundle is the set of roots that API servers trust for the serving certificate.
// Equal sets have equal PEM bytes, because each change of the bytes in a caBundle
// costs every API server a new connection. The zero Bundle is empty.
type Bundle struct {
	roots []*x509.Certificate
}

// NewBundle returns a bundle of one or two CA certificates. It ignores their order
// and duplicates.
func NewBundle(roots ...*x509.Certificate) (Bundle, error) {
	roots = canonicalRoots(roots)
	switch {
	case len(roots) == 0:
		return Bundle{}, reject(ReasonEncoding, errors.New("the bundle contains no certificate"))
	case len(roots) > maxRoots:
		return Bundle{}, reject(ReasonEncoding, fmt.Errorf("the bundle has %d roots: at most %d are allowed", len(roots), maxRoots))
	}
	for _, c := range roots {
		if err := checkIsCA(c); err != nil {
			return Bundle{}, err
		}
	}
	return Bundle{roots: roots}, nil
}

// canonicalRoots returns the certificates sorted by their encoding and without
// duplicates.
func canonicalRoots(roots []*x509.Certificate) []*x509.Certificate {
	byEncoding := func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) }
	return slices.CompactFunc(slices.SortedFunc(slices.Values(roots), byEncoding), (*x509.Certificate).Equal)
}

// checkIsCA returns an error unless the certificate is a CA or self-signed.
func checkIsCA(c *x509.Certificate) error {
	if c.BasicConstraintsValid && c.IsCA || selfSigned(c) {
		return nil
	}
	return reject(ReasonUsage, fmt.Errorf("certificate %s is not a CA", Serial(c)))
}

func selfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

// ParseBundle reads a bundle from PEM.
func ParseBundle(data []byte) (Bundle, error) {
	certs, err := ParseCertificates(data)
	if err != nil {
		return Bundle{}, err
	}
	return NewBundle(certs...)
}

// PEM returns the canonical bytes of the bundle.
func (b Bundle) PEM() []byte { return EncodeCertificates(b.roots...) }

// Equal reports whether two bundles hold the same roots.
func (b Bundle) Equal(other Bundle) bool {
	return slices.EqualFunc(b.roots, other.roots, (*x509.Certificate).Equal)
}

// Issuer returns the root that signed the certificate, nil if none did.
func (b Bundle) Issuer(c *x509.Certificate) *x509.Certificate {
	for _, root := range b.roots {
		if c.CheckSignatureFrom(root) == nil {
			return root
		}
	}
	return nil
}

// Anchor returns the root that verifies a pair: the root that signed it, or the
// root that its chain leads to; nil if there is none.
func (b Bundle) Anchor(p Pair) *x509.Certificate {
	if root := b.Issuer(p.Certificate()); root != nil {
		return root
	}
	if i := slices.IndexFunc(b.roots, p.leadsTo); i >= 0 {
		return b.roots[i]
	}
	return nil
}

// Roots returns the certificates of the bundle.
func (b Bundle) Roots() []*x509.Certificate { return slices.Clone(b.roots) }
