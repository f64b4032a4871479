package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// ExternalBundle reads the certificates that somebody else's server is verified
// with, and returns them in canonical form: sorted, without duplicates and
// without whatever text stands between them. Unlike a [Bundle] they may be any
// number that fits into 64 KiB, and a server's own certificate among them.
//
// It refuses what no server could be verified with, and a private key, which
// has no place where everybody may read it. Its errors quote nothing of what
// they are about.
func ExternalBundle(data []byte, now time.Time) ([]byte, error) {
	certs, err := ParseExternalCertificates(data)
	if err != nil {
		return nil, err
	}
	certs = canonicalRoots(certs)
	var last error
	for _, c := range certs {
		if last = checkValidity(c, now); last == nil {
			return EncodeCertificates(certs...), nil
		}
	}
	if len(certs) > 1 {
		last = reject(ReasonValidity, fmt.Errorf("none of the %d certificates is valid now, as this one: %w", len(certs), last))
	}
	return nil, last
}

// ParseExternalCertificates reads certificates that somebody else wrote, in their
// order. It is as strict as [ForeignBundle].
func ParseExternalCertificates(data []byte) ([]*x509.Certificate, error) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, reject(ReasonEncoding, errors.New("empty: write at least one certificate in PEM"))
	case len(data) > maxPEM:
		return nil, reject(ReasonEncoding, fmt.Errorf("%d bytes: at most %d are read", len(data), maxPEM))
	case bytes.Contains(data, []byte("PRIVATE KEY")):
		return nil, reject(ReasonKey, errors.New("it holds a private key: remove it, only certificates belong there"))
	}
	blocks := bytes.Count(data, []byte("-----BEGIN "))
	if blocks == 0 {
		return nil, reject(ReasonEncoding, errors.New("not PEM: there is no certificate in it"))
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			return nil, reject(ReasonEncoding, fmt.Errorf("block %d is not a certificate", len(certs)+1))
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, reject(ReasonEncoding, fmt.Errorf("block %d is not a certificate that can be read", len(certs)+1))
		}
		certs = append(certs, c)
	}
	if len(certs) != blocks { // the decoder skips what it cannot read
		return nil, reject(ReasonEncoding, fmt.Errorf("only %d of %d blocks are PEM", len(certs), blocks))
	}
	return certs, nil
}
