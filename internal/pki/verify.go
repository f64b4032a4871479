package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Reason is why a pair or a bundle is rejected. The set is fixed, so a Reason may
// be a metric label.
type Reason string

// The reasons for which a pair or a bundle is rejected.
const (
	ReasonEncoding Reason = "encoding"
	ReasonKey      Reason = "key"
	ReasonNames    Reason = "names"
	ReasonUsage    Reason = "usage"
	ReasonValidity Reason = "validity"
	ReasonChain    Reason = "chain"
	ReasonEpoch    Reason = "epoch"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{ReasonEncoding, ReasonKey, ReasonNames, ReasonUsage, ReasonValidity, ReasonChain, ReasonEpoch}
}

// RejectedError is the error for an unusable pair or bundle. Its text never
// contains a key.
type RejectedError struct {
	Reason Reason
	Err    error
}

// Error implements error.
func (e *RejectedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RejectedError) Unwrap() error { return e.Err }

func reject(reason Reason, err error) error { return &RejectedError{Reason: reason, Err: err} }

// Verify returns nil if an API server that trusts the bundle accepts the chain,
// leaf first, for each of the names.
func Verify(chain []*x509.Certificate, bundle Bundle, names Names, now time.Time) error {
	if len(chain) == 0 {
		return reject(ReasonChain, errors.New("the chain contains no certificate"))
	}
	if err := names.coveredBy(chain[0]); err != nil {
		return reject(ReasonNames, err)
	}
	opts := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, c := range bundle.roots {
		opts.Roots.AddCert(c)
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return reject(ReasonChain, err)
	}
	return nil
}

// Check returns nil if the pair may be served: it is a valid server certificate
// for each of the names, and verifies under the bundle. NewPair has checked that
// the key matches.
func (p Pair) Check(bundle Bundle, names Names, now time.Time) error {
	if p.IsZero() {
		return reject(ReasonEncoding, errors.New("no certificate"))
	}
	leaf := p.Certificate()
	if err := checkValidity(leaf, now); err != nil {
		return err
	}
	if err := checkUsage(leaf); err != nil {
		return reject(ReasonUsage, err)
	}
	return Verify(p.chain, bundle, names, now)
}

// checkUsage accepts certificates without usages: they are valid for any.
func checkUsage(leaf *x509.Certificate) error {
	extended := len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0
	switch {
	case leaf.IsCA:
		return errors.New("the certificate is a CA: issue one for a TLS server, with basicConstraints CA:FALSE")
	case leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return errors.New("the certificate lacks the key usage digitalSignature: issue one for a TLS server")
	case extended && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny):
		return errors.New("the certificate lacks the extended key usage serverAuth: issue one for a TLS server")
	}
	return nil
}

func checkValidity(c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return reject(ReasonValidity, fmt.Errorf("the certificate is not valid before %s", c.NotBefore.UTC().Format(time.RFC3339)))
	case now.After(c.NotAfter):
		return reject(ReasonValidity, fmt.Errorf("the certificate expired at %s", c.NotAfter.UTC().Format(time.RFC3339)))
	}
	return nil
}

// checkCA returns nil if the pair may sign leaves for the names.
func (p Pair) checkCA(names Names, now time.Time) error {
	if p.IsZero() {
		return reject(ReasonEncoding, errors.New("there is no usable CA"))
	}
	ca := p.Certificate()
	if err := checkValidity(ca, now); err != nil {
		return err
	}
	if checkIsCA(ca) != nil || ca.MaxPathLen != caPathLength || ca.CheckSignatureFrom(ca) != nil {
		return reject(ReasonUsage, errors.New("the CA certificate is not a self-signed CA with path length 1"))
	}
	if key, ok := p.key.(*ecdsa.PrivateKey); !ok || key.Curve != elliptic.P256() {
		return reject(ReasonKey, errors.New("the CA has no ECDSA key on curve P-256"))
	}
	if !names.permittedBy(ca) {
		return reject(ReasonNames, errors.New("the CA does not permit every server name"))
	}
	return nil
}

// checkAt is Check by both clocks.
func (p Pair) checkAt(clocks Clocks, bundle Bundle, names Names) error {
	return clocks.passesByEither(func(now time.Time) error { return p.Check(bundle, names, now) })
}

// checkCAFor returns nil if the pair may be the CA, by both clocks: it can sign,
// or, with an external issuer, it can be trusted.
func (p Pair) checkCAFor(o Observed, names Names) error {
	return o.Clocks.passesByEither(func(now time.Time) error {
		switch {
		case o.External == nil:
			return p.checkCA(names, now)
		case p.IsZero():
			return reject(ReasonEncoding, errors.New("there is no usable CA"))
		case checkIsCA(p.Certificate()) != nil:
			return checkIsCA(p.Certificate())
		}
		return checkValidity(p.Certificate(), now)
	})
}

// root returns the root that the pair needs: the one that signed it, or one that
// its chain leads to; nil if there is none.
func (p Pair) root(roots []*x509.Certificate, clocks Clocks) *x509.Certificate {
	var indirect *x509.Certificate
	for _, root := range roots {
		if p.checkAt(clocks, Bundle{roots: []*x509.Certificate{root}}, Names{}) != nil {
			continue
		}
		if p.Certificate().CheckSignatureFrom(root) == nil {
			return root
		}
		indirect = root
	}
	return indirect
}
