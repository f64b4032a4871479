package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Pair is a certificate, the intermediate certificates that lead from it to a
// root, and the private key. The zero Pair holds nothing.
//
// The key is not exported and String leaves it out, so that a Pair which
// reaches a log line or an error by mistake gives nothing away.
type Pair struct {
	chain []*x509.Certificate
	key   *ecdsa.PrivateKey
}

// NewPair puts a chain, leaf first, and its key together. It refuses a key
// that is not the one of the leaf, or not on curve P-256.
func NewPair(chain []*x509.Certificate, key *ecdsa.PrivateKey) (Pair, error) {
	if len(chain) == 0 {
		return Pair{}, reject(ReasonEncoding, errors.New("the chain holds no certificate"))
	}
	if key == nil || key.Curve != elliptic.P256() {
		return Pair{}, reject(ReasonKey, errors.New("the key is not an ECDSA key on curve P-256"))
	}
	if !key.PublicKey.Equal(chain[0].PublicKey) {
		return Pair{}, reject(ReasonKey, errors.New("the key does not belong to the certificate"))
	}
	return Pair{chain: slices.Clone(chain), key: key}, nil
}

// IsZero reports whether the pair holds nothing.
func (p Pair) IsZero() bool { return len(p.chain) == 0 }

// Certificate returns the first certificate of the chain, the one that the key
// belongs to; nil for the zero Pair.
func (p Pair) Certificate() *x509.Certificate {
	if p.IsZero() {
		return nil
	}
	return p.chain[0]
}

// TLS returns the pair in the form that a TLS server presents.
func (p Pair) TLS() *tls.Certificate {
	c := &tls.Certificate{PrivateKey: p.key, Leaf: p.Certificate()}
	for _, cert := range p.chain {
		c.Certificate = append(c.Certificate, cert.Raw)
	}
	return c
}

// String describes the certificate and leaves the key out.
func (p Pair) String() string {
	if p.IsZero() {
		return "no certificate"
	}
	c := p.Certificate()
	return fmt.Sprintf("certificate %s of %s, valid until %s", Serial(c), c.Subject.CommonName, c.NotAfter.Format(time.RFC3339))
}

// Serial returns a certificate's serial number in hexadecimal.
func Serial(c *x509.Certificate) string { return fmt.Sprintf("%032x", c.SerialNumber) }
