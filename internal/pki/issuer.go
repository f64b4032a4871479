package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// issuerDomain is the domain that the CA of an [Issuer] may sign for: the names of
// Services.
const issuerDomain = "svc"

// Issuer is the CA for the certificates of backends' Services. Ostiary's own CA is
// constrained to one name and cannot sign them.
//
// When the Issuer is replaced, the old CA signs a cross-certificate for the new
// one. Clients that trust either CA verify a leaf that is presented with it, so
// bundles and leaves may change in any order.
type Issuer struct {
	Pair Pair
	// Previous is the CA before this one. It is trusted until it expires.
	Previous *x509.Certificate
	// CrossCertificate certifies this CA's key and name with the key of Previous; nil
	// if that key was lost.
	CrossCertificate *x509.Certificate
}

// NeedsRenewal returns why the issuer has to be replaced; "" if it need not be.
func (i Issuer) NeedsRenewal(c Config, now time.Time) string {
	if err := i.Pair.checkCA(issuerNames(), now); err != nil {
		return err.Error()
	}
	ca := i.Pair.Certificate()
	if now.Sub(c.start(ca)) >= min(c.CARenewAfter, ca.NotAfter.Sub(c.start(ca))/2) {
		return "the CA has reached its renewal age"
	}
	return ""
}

func issuerNames() Names { return Names{DNS: []string{issuerDomain}} }

// Next creates the next issuer. If the key of this one is lost, remembered are the
// roots of the certificates in use.
func (i Issuer) Next(c Config, remembered []*x509.Certificate, now time.Time, random io.Reader) (Issuer, error) {
	ca, err := newCA(issuerNames(), c, Clocks{Local: now}, random)
	if err != nil {
		return Issuer{}, fmt.Errorf("creating a CA for backends: %w", err)
	}
	next := Issuer{Pair: ca}
	if i.Pair.checkCA(issuerNames(), now) == nil {
		next.Previous = i.Pair.Certificate()
		if next.CrossCertificate, err = newCrossCertificate(i.Pair, ca, random); err != nil {
			return Issuer{}, fmt.Errorf("cross-certifying a CA for backends: %w", err)
		}
		return next, nil
	}
	for _, root := range remembered {
		if checkIsCA(root) == nil && checkValidity(root, now) == nil {
			next.Previous = root
			break
		}
	}
	return next, nil
}

// Bundle returns the roots that verify the certificates of this issuer and of the
// previous one.
func (i Issuer) Bundle(now time.Time) Bundle {
	if i.Pair.IsZero() {
		return Bundle{}
	}
	roots := []*x509.Certificate{i.Pair.Certificate()}
	if i.Previous != nil && !now.After(i.Previous.NotAfter) {
		roots = append(roots, i.Previous)
	}
	return Bundle{roots: canonicalRoots(roots)}
}

// LeafDue returns why a leaf for the names has to be replaced; "" if it need not
// be.
func (i Issuer) LeafDue(leaf Pair, names Names, c Config, now time.Time) string {
	if err := leaf.Check(i.Bundle(now), names, now); err != nil {
		return err.Error()
	}
	cert := leaf.Certificate()
	switch {
	case !names.equal(cert):
		return "the names have changed"
	case now.Sub(c.start(cert)) >= min(c.LeafRenewAfter, cert.NotAfter.Sub(c.start(cert))*2/3):
		return "the certificate has reached its renewal age"
	case cert.CheckSignatureFrom(i.Pair.Certificate()) == nil:
		return ""
	case i.CrossCertificate != nil || now.Sub(c.start(i.Pair.Certificate())) >= c.Overlap:
		return "the CA has changed"
	}
	return "" // API servers may not trust the new CA yet
}

// Issue returns a new leaf for the names.
func (i Issuer) Issue(names Names, c Config, now time.Time, random io.Reader) (Pair, error) {
	leaf, err := newLeaf(Authority{Pair: i.Pair, CrossCertificate: i.CrossCertificate}, names, c, Clocks{Local: now}, random)
	if err != nil {
		return Pair{}, fmt.Errorf("issuing a certificate for a backend: %w", err)
	}
	if err := leaf.Check(i.Bundle(now), names, now); err != nil {
		return Pair{}, fmt.Errorf("checking a new certificate for a backend: %w", err)
	}
	return leaf, nil
}

// ReadIssuer reads an issuer from PEM. The previous CA and the cross-certificate
// may be missing.
func ReadIssuer(chain, key, previous, cross []byte) (Issuer, error) {
	pair, err := ReadPair(chain, key)
	if err != nil {
		return Issuer{}, err
	}
	i := Issuer{Pair: pair}
	for _, part := range []struct {
		pem  []byte
		into **x509.Certificate
	}{{previous, &i.Previous}, {cross, &i.CrossCertificate}} {
		if len(part.pem) == 0 {
			continue
		}
		certs, err := ParseCertificates(part.pem)
		if err != nil {
			return Issuer{}, err
		}
		if len(certs) != 1 {
			return Issuer{}, reject(ReasonEncoding, errors.New("several certificates: expected one"))
		}
		*part.into = certs[0]
	}
	if i.CrossCertificate != nil && (i.Previous == nil || i.CrossCertificate.CheckSignatureFrom(i.Previous) != nil || !slices.Equal(i.CrossCertificate.RawSubjectPublicKeyInfo, pair.Certificate().RawSubjectPublicKeyInfo)) {
		i.CrossCertificate = nil // it does not belong to this chain
	}
	return i, nil
}

// ReadPair reads a pair from PEM.
func ReadPair(chain, key []byte) (Pair, error) {
	certs, err := ParseCertificates(chain)
	if err != nil {
		return Pair{}, err
	}
	k, err := ParseKey(key)
	if err != nil {
		return Pair{}, err
	}
	return NewPair(certs, k)
}
