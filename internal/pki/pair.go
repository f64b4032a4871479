package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
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
	key   crypto.Signer // a pointer, which prints as nothing but an address
}

// NewPair puts a chain, leaf first, and its key together. It refuses a key
// that is not the one of the leaf, or that API servers do not accept.
func NewPair(chain []*x509.Certificate, key crypto.Signer) (Pair, error) {
	if len(chain) == 0 {
		return Pair{}, reject(ReasonEncoding, errors.New("the chain holds no certificate"))
	}
	if err := checkKey(key); err != nil {
		return Pair{}, reject(ReasonKey, err)
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(chain[0].PublicKey) {
		return Pair{}, reject(ReasonKey, errors.New("the key does not belong to the certificate"))
	}
	return Pair{chain: slices.Clone(chain), key: key}, nil
}

// NewRoot is a CA that somebody else keeps the key of.
func NewRoot(ca *x509.Certificate) Pair { return Pair{chain: []*x509.Certificate{ca}} }

func checkKey(key crypto.Signer) error {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P224() {
			return errors.New("the key is on curve P-224, which TLS does not know: use P-256")
		}
		return nil
	case *rsa.PrivateKey:
		if bits := k.N.BitLen(); bits < minRSA || bits > maxRSA {
			return fmt.Errorf("the key is an RSA key of %d bits: use one of %d to %d bits, or an ECDSA key", bits, minRSA, maxRSA)
		}
		return nil
	}
	return errors.New("the key is neither an ECDSA nor an RSA key")
}

// The sizes of RSA keys that TLS accepts and nobody breaks.
const (
	minRSA = 2048
	maxRSA = 8192
)

// IsZero reports whether the pair holds nothing.
func (p Pair) IsZero() bool { return len(p.chain) == 0 }

// HasKey reports whether the key is at hand.
func (p Pair) HasKey() bool { return p.key != nil }

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
