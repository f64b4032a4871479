package pki

import (
	"fmt"
	"io"
	"time"
)

// Apply performs an action and returns the state to store.
func Apply(s State, a Action, o Observed, names Names, c Config, random io.Reader) (State, error) {
	var err error
	paths := s.paths(o, c)
	switch a.Kind {
	case CreateCA:
		s.CA, err = s.nextAuthority(a, o, names, c, random)
	case RestoreCA:
		s.CA = o.Memory.CA
	case IssueLeaf:
		s.Serving, err = s.newServing(o, names, c, random)
	case RestoreLeaf:
		s.Serving = s.withOwnLeaf(o)
	case PublishBundle:
		s.Serving = s.withBundle(o)
	case Retire:
		s.CA.Previous = nil
		s.CA.PreviousRemoved = o.Clocks.Now().UTC().Truncate(time.Second)
	case Wait:
	default:
		err = fmt.Errorf("action %q is unknown", a.Kind)
	}
	if a.Kind != Wait && !a.Kind.OfCA() {
		s.Serving.Paths = paths
	}
	return s, err
}

func (s State) nextAuthority(a Action, o Observed, names Names, c Config, random io.Reader) (Authority, error) {
	epoch := min(max(s.CA.Epoch, o.epoch(s)), MaxEpoch-1) + 1
	path, err := s.nextPath(random)
	if err != nil {
		return Authority{}, fmt.Errorf("generating a path: %w", err)
	}
	if o.External != nil {
		return s.externalAuthority(o, names, epoch, path)
	}
	ca, err := newCA(names, c, o.Clocks, random)
	if err != nil {
		return Authority{}, fmt.Errorf("creating a CA: %w", err)
	}
	next := Authority{Pair: ca, Epoch: epoch, LastRequest: o.Request, Path: path}
	if !a.CrossCertified {
		next.Previous = s.stillNeeded(o)
		return next, nil
	}
	next.Previous = s.CA.Pair.Certificate()
	if next.CrossCertificate, err = newCrossCertificate(s.CA.Pair, ca, random); err != nil {
		return Authority{}, fmt.Errorf("cross-certifying the new CA: %w", err)
	}
	return next, nil
}

func (s State) newServing(o Observed, names Names, c Config, random io.Reader) (Serving, error) {
	leaf, err := s.leaf(o, names, c, random)
	if err != nil {
		return Serving{}, fmt.Errorf("issuing a leaf: %w", err)
	}
	bundle := s.CA.trusted(o.Clocks)
	if err := leaf.checkAt(o.Clocks, bundle, names); err != nil {
		return Serving{}, fmt.Errorf("checking the new leaf: %w", err)
	}
	return Serving{Pair: leaf, Bundle: bundle, Epoch: s.CA.Epoch, TrustEpoch: s.CA.Epoch}, nil
}

// leaf returns a new leaf, or the external one.
func (s State) leaf(o Observed, names Names, c Config, random io.Reader) (Pair, error) {
	if o.External != nil {
		return o.External.Pair, nil
	}
	return newLeaf(s.CA, names, c, o.Clocks, random)
}

// withOwnLeaf returns what this process serves, with the newer of the two bundles.
func (s State) withOwnLeaf(o Observed) Serving {
	next := o.Memory.Serving
	if s.Serving.TrustEpoch > next.TrustEpoch && len(s.Serving.Bundle.roots) > 0 {
		next.Bundle, next.TrustEpoch = s.Serving.Bundle, s.Serving.TrustEpoch
	}
	return next
}

// withBundle returns the stored Serving with the bundle of the CA.
func (s State) withBundle(o Observed) Serving {
	next := s.Serving
	next.Bundle, next.TrustEpoch = s.CA.trusted(o.Clocks), s.CA.Epoch
	if s.CA.signed(next.Pair) {
		next.Epoch = s.CA.Epoch
	}
	return next
}
