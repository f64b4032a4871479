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

// Pair is a certificate, its intermediate certificates and its private key. The
// zero Pair is empty.
//
// The key is not exported and String omits it, so that a Pair in a log line or an
// error does not leak the key.
type Pair struct {
	chain []*x509.Certificate
	key   crypto.Signer // a pointer, of which fmt prints only the address
}

// NewPair combines a chain, leaf first, with its key. It rejects a key that does
// not match the leaf, and key types that API servers do not accept.
func NewPair(chain []*x509.Certificate, key crypto.Signer) (Pair, error) {
	if len(chain) == 0 {
		return Pair{}, reject(ReasonEncoding, errors.New("the chain contains no certificate"))
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

// NewRoot returns a CA without its key, which an external issuer holds.
func NewRoot(ca *x509.Certificate) Pair { return Pair{chain: []*x509.Certificate{ca}} }

func checkKey(key crypto.Signer) error {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P224() {
			return errors.New("the key is on curve P-224, which TLS does not support: use P-256")
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

// The sizes in bits of accepted RSA keys.
const (
	minRSA = 2048
	maxRSA = 8192
)

// IsZero reports whether the pair is empty.
func (p Pair) IsZero() bool { return len(p.chain) == 0 }

// HasKey reports whether the pair includes its key.
func (p Pair) HasKey() bool { return p.key != nil }

// Certificate returns the first certificate of the chain, which belongs to the
// key. It is nil for the zero Pair.
func (p Pair) Certificate() *x509.Certificate {
	if p.IsZero() {
		return nil
	}
	return p.chain[0]
}

// TLS returns the pair for a TLS server.
func (p Pair) TLS() *tls.Certificate {
	c := &tls.Certificate{PrivateKey: p.key, Leaf: p.Certificate()}
	for _, cert := range p.chain {
		c.Certificate = append(c.Certificate, cert.Raw)
	}
	return c
}

// String describes the certificate without the key.
func (p Pair) String() string {
	if p.IsZero() {
		return "no certificate"
	}
	c := p.Certificate()
	return fmt.Sprintf("certificate %s of %s, valid until %s", Serial(c), c.Subject.CommonName, c.NotAfter.Format(time.RFC3339))
}

// Serial returns a certificate's serial number in hexadecimal.
func Serial(c *x509.Certificate) string { return fmt.Sprintf("%032x", c.SerialNumber) }
