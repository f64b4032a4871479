package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// ExternalBundle reads the certificates that verify an external server and returns
// them in canonical form: sorted, without duplicates and without text between
// them. Unlike a [Bundle], the result may contain any number of certificates
// within 64 KiB, including the server's own.
//
// It rejects bundles without a currently valid certificate, and private keys,
// because a bundle is public. Its errors quote nothing of the input.
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
		last = reject(ReasonValidity, fmt.Errorf("none of the %d certificates is currently valid; the last one: %w", len(certs), last))
	}
	return nil, last
}

// ParseExternalCertificates reads certificates of an external issuer in their
// order. It is as strict as [ExternalBundle].
func ParseExternalCertificates(data []byte) ([]*x509.Certificate, error) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, reject(ReasonEncoding, errors.New("empty: write at least one certificate in PEM"))
	case len(data) > maxPEM:
		return nil, reject(ReasonEncoding, fmt.Errorf("%d bytes: the limit is %d", len(data), maxPEM))
	case bytes.Contains(data, []byte("PRIVATE KEY")):
		return nil, reject(ReasonKey, errors.New("it contains a private key: remove the key, a bundle contains only certificates"))
	}
	blocks := bytes.Count(data, []byte("-----BEGIN "))
	if blocks == 0 {
		return nil, reject(ReasonEncoding, errors.New("not PEM: it contains no certificate"))
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			return nil, reject(ReasonEncoding, fmt.Errorf("block %d is not a certificate", len(certs)+1))
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, reject(ReasonEncoding, fmt.Errorf("block %d is not a valid certificate", len(certs)+1))
		}
		certs = append(certs, c)
	}
	if len(certs) != blocks { // the decoder skips what it cannot read
		return nil, reject(ReasonEncoding, fmt.Errorf("only %d of %d blocks are PEM", len(certs), blocks))
	}
	return certs, nil
}
