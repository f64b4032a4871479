package pki

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// maxChain is the maximum number of certificates in an external chain. Each
	// handshake sends them.
	maxChain = 10
	// expiringBefore is how long before its expiry an external certificate is
	// reported as expiring at the latest.
	expiringBefore = 14 * day
)

// ExternalCertificate is a serving certificate from an external issuer, such as
// cert-manager. It replaces the one that Ostiary would issue.
type ExternalCertificate struct {
	// Pair is the leaf with its chain and key.
	Pair Pair
	// Roots are the contents of ca.crt, from the issuer.
	Roots []*x509.Certificate
	// Err is why the certificate cannot be read; nil if it can.
	Err error
}

// anchor returns the root to trust for the certificate: the present one if it
// verifies the certificate, or else preferably a root rather than an intermediate.
// The error says why the certificate is unusable.
func (e ExternalCertificate) anchor(present *x509.Certificate, clocks Clocks, names Names) (*x509.Certificate, error) {
	switch {
	case e.Err != nil:
		return nil, e.Err
	case len(e.Pair.chain) > maxChain:
		return nil, reject(ReasonEncoding, fmt.Errorf("a chain of %d certificates: at most %d are allowed", len(e.Pair.chain), maxChain))
	case len(e.Roots) == 0:
		return nil, reject(ReasonChain, errors.New("there is no CA to verify the certificate with"))
	}
	var best *x509.Certificate
	var first error
	for _, root := range e.Roots {
		err := checkIsCA(root)
		if err == nil {
			err = e.Pair.checkAt(clocks, Bundle{roots: []*x509.Certificate{root}}, names)
		}
		switch {
		case err != nil:
			first = cmp.Or(first, err)
		case sameCertificate(root, present):
			return root, nil
		case best == nil || !selfSigned(best) && selfSigned(root):
			best = root
		}
	}
	if best == nil {
		return nil, withRemedy(first)
	}
	return best, nil
}

// withRemedy adds a fix to the error "unknown authority" of crypto/x509.
func withRemedy(err error) error {
	var rejected *RejectedError
	if errors.As(err, &rejected) && rejected.Reason == ReasonChain {
		return reject(ReasonChain, fmt.Errorf("ca.crt does not verify the certificate: %w; write the root of the chain to ca.crt", err))
	}
	return err
}

// ExternalProblem returns why the external certificate is unusable or about to
// expire; nil if it is neither, or there is no external issuer. The replicas keep
// what they serve meanwhile.
func (s State) ExternalProblem(o Observed, names Names) error {
	if o.External == nil {
		return nil
	}
	if _, err := o.External.anchor(s.CA.Pair.Certificate(), o.Clocks, names); err != nil {
		return err
	}
	leaf := o.External.Pair.Certificate()
	if left := leaf.NotAfter.Sub(o.Clocks.Now()); left < min(leaf.NotAfter.Sub(leaf.NotBefore)/5, expiringBefore) {
		return &ExpiringError{At: leaf.NotAfter}
	}
	return nil
}

// ExpiringError means that a certificate has not been renewed in time.
type ExpiringError struct{ At time.Time }

// Error implements error.
func (e *ExpiringError) Error() string {
	return fmt.Sprintf("the certificate expires at %s and has not been renewed: check its issuer", e.At.UTC().Format(time.RFC3339))
}

// canProvideLeaf reports whether Ostiary can issue a leaf or has a usable external
// one.
func (s State) canProvideLeaf(o Observed, names Names) bool {
	if o.External == nil {
		return true
	}
	_, err := o.External.anchor(s.CA.Pair.Certificate(), o.Clocks, names)
	return err == nil
}

// externalCA returns why to trust another CA for the external certificate; "" if
// the current one is right.
func (s State) externalCA(o Observed, names Names, c Config) string {
	if o.External == nil {
		return ""
	}
	anchor, err := o.External.anchor(s.CA.Pair.Certificate(), o.Clocks, names)
	switch {
	case err != nil:
		return "" // no root to trust
	case !anchor.Equal(s.CA.Pair.Certificate()):
		return "the external certificate has another CA"
	case s.CA.Epoch < o.epoch(s):
		return "a served or published certificate has a later epoch"
	case o.Request != "" && o.Request != s.CA.LastRequest && s.rotationBlocker(o, names, c) == "":
		return "a rotation was requested" // only of the path: Ostiary cannot replace an external CA
	}
	return ""
}

// externalAuthority returns the CA of the external certificate with a new epoch.
// It has no cross-certificate, so it is published before its leaf is served.
func (s State) externalAuthority(o Observed, names Names, epoch int64, path string) (Authority, error) {
	anchor, err := o.External.anchor(s.CA.Pair.Certificate(), o.Clocks, names)
	if err != nil {
		return Authority{}, fmt.Errorf("trusting another CA: %w", err)
	}
	next := Authority{Pair: NewRoot(anchor), Epoch: epoch, LastRequest: o.Request, Path: path}
	if previous := s.stillNeeded(o); !sameCertificate(previous, anchor) {
		next.Previous = previous
	}
	return next, nil
}

// nextExternal returns the next action for a valid leaf if the issuer is external.
func (s State) nextExternal(o Observed, names Names, c Config) (Action, bool) {
	if !s.canProvideLeaf(o, names) || slices.EqualFunc(o.External.Pair.chain, s.Serving.Pair.chain, (*x509.Certificate).Equal) {
		return Action{}, false
	}
	leaf := s.Serving.Pair.Certificate()
	switch {
	case s.mayServe(o, c):
		return Action{Kind: IssueLeaf, Reason: "the external certificate has changed"}, true
	case !o.Clocks.Now().Before(leaf.NotAfter.Add(-c.MinimumLeft(leaf))):
		return Action{Kind: IssueLeaf, Reason: "the CA has changed, and the certificate expires before the overlap ends"}, true
	}
	return Action{}, false
}

// leadsTo reports whether a chain of signatures leads from the leaf to the
// certificate, or the leaf is the certificate.
func (p Pair) leadsTo(root *x509.Certificate) bool {
	reached := []*x509.Certificate{p.chain[0]}
	for i := 0; i < len(reached); i++ {
		if reached[i].Equal(root) || issued(reached[i], root) {
			return true
		}
		for _, c := range p.chain[1:] {
			if !slices.ContainsFunc(reached, c.Equal) && issued(reached[i], c) {
				reached = append(reached, c)
			}
		}
	}
	return false
}

// issued reports whether a verifier accepts issuer as the issuer of c. Verifiers
// find issuers by name.
func issued(c, issuer *x509.Certificate) bool {
	return bytes.Equal(c.RawIssuer, issuer.RawSubject) && c.CheckSignatureFrom(issuer) == nil
}
