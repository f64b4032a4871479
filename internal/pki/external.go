package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// maxChain is how many certificates a foreign leaf may bring: each handshake
	// carries them.
	maxChain = 10
	// expiringBefore is how long before the end of a foreign leaf somebody is told at
	// the latest.
	expiringBefore = 14 * day
)

// ExternalCertificate is a leaf that somebody else issues for Ostiary to serve. It takes the
// place of the leaf that Ostiary issues itself.
type ExternalCertificate struct {
	// Pair is the leaf with its chain and key.
	Pair Pair
	// Roots are what its issuer says that it is verified with.
	Roots []*x509.Certificate
	// Err is why there is nothing that can be read.
	Err error
}

// anchor is the one of the roots that the leaf is verified with, and has to be
// trusted: the present one if it does, else rather a root than an intermediate.
// The error says why the offer is of no use.
func (f ExternalCertificate) anchor(present *x509.Certificate, clocks Clocks, names Names) (*x509.Certificate, error) {
	switch {
	case f.Err != nil:
		return nil, f.Err
	case len(f.Pair.chain) > maxChain:
		return nil, reject(ReasonEncoding, fmt.Errorf("a chain of %d certificates: at most %d are served", len(f.Pair.chain), maxChain))
	case len(f.Roots) == 0:
		return nil, reject(ReasonChain, errors.New("there is no CA to verify the certificate with"))
	}
	var best *x509.Certificate
	var first error
	for _, root := range f.Roots {
		err := checkIsCA(root)
		if err == nil {
			err = f.Pair.checkAt(clocks, Bundle{roots: []*x509.Certificate{root}}, names)
		}
		switch {
		case err != nil:
			first = valueOr(first, err)
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

func valueOr(first, err error) error {
	if first != nil {
		return first
	}
	return err
}

// withRemedy adds what to do to an error that crypto/x509 leaves at "unknown
// authority".
func withRemedy(err error) error {
	var rejected *RejectedError
	if errors.As(err, &rejected) && rejected.Reason == ReasonChain {
		return reject(ReasonChain, fmt.Errorf("the CA beside the certificate does not verify it: %w; put the root that the chain leads to there", err))
	}
	return err
}

// ExternalProblem is why what somebody else issues is of no use, or will not be
// for long; nil where it is, or nobody else issues anything. The replicas go on
// with what they have meanwhile.
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

// ExpiringError says that nobody has replaced a leaf in time.
type ExpiringError struct{ At time.Time }

// Error implements error.
func (e *ExpiringError) Error() string {
	return fmt.Sprintf("the certificate expires at %s, and nobody has replaced it yet", e.At.UTC().Format(time.RFC3339))
}

// canProvideLeaf reports whether there is a leaf that can be taken over or made.
func (s State) canProvideLeaf(o Observed, names Names) bool {
	if o.External == nil {
		return true
	}
	_, err := o.External.anchor(s.CA.Pair.Certificate(), o.Clocks, names)
	return err == nil
}

// externalCA is why another CA has to be trusted, because the leaf that somebody
// else issues is of that; empty if it has not.
func (s State) externalCA(o Observed, names Names, c Config) string {
	if o.External == nil {
		return ""
	}
	anchor, err := o.External.anchor(s.CA.Pair.Certificate(), o.Clocks, names)
	switch {
	case err != nil:
		return "" // and nothing to trust
	case !anchor.Equal(s.CA.Pair.Certificate()):
		return "the certificate that is offered is of another CA"
	case s.CA.Epoch < o.epoch(s):
		return "something served or published is of a later epoch"
	case o.Request != "" && o.Request != s.CA.LastRequest && s.rotationBlocker(o, names, c) == "":
		return "a rotation was asked for" // of the path: the CA is not Ostiary's to replace
	}
	return ""
}

// externalAuthority is the CA of the leaf that is offered, of a new epoch. Nobody vouches
// for it, so it gets known before its leaf is used.
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

// nextExternal says what to do about a good leaf where somebody else issues them.
func (s State) nextExternal(o Observed, names Names, c Config) (Action, bool) {
	if !s.canProvideLeaf(o, names) || slices.EqualFunc(o.External.Pair.chain, s.Serving.Pair.chain, (*x509.Certificate).Equal) {
		return Action{}, false
	}
	leaf := s.Serving.Pair.Certificate()
	switch {
	case s.mayServe(o, c):
		return Action{Kind: IssueLeaf, Reason: "another certificate is offered"}, true
	case !o.Clocks.Now().Before(leaf.NotAfter.Add(-c.MinimumLeft(leaf))):
		return Action{Kind: IssueLeaf, Reason: "the CA has changed, and the leaf cannot wait"}, true
	}
	return Action{}, false
}

// leadsTo reports whether signatures lead from the leaf over its chain to the
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

// issued reports whether a verifier would take the one for the issuer of the
// other. It looks for it by name.
func issued(c, issuer *x509.Certificate) bool {
	return bytes.Equal(c.RawIssuer, issuer.RawSubject) && c.CheckSignatureFrom(issuer) == nil
}
