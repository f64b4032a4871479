package pki

import (
	"crypto/x509"
	"fmt"
	"io"
	"time"
)

// MaxEpoch bounds the epoch, so that an edited one cannot overflow.
const MaxEpoch = 1 << 62

// State is everything that the next step depends on. A part that is missing
// or cannot be used is zero.
type State struct {
	CA      Authority
	Serving Serving
}

// Authority is the CA that signs, kept by the leader.
type Authority struct {
	Pair Pair
	// Previous is the CA that this one follows; it is trusted until it expires.
	Previous *x509.Certificate
	// Epoch counts the CAs. It never goes back.
	Epoch int64
}

// Serving is what the replicas present and what API servers are told to trust.
type Serving struct {
	Pair   Pair
	Bundle Bundle
	// Epoch is that of the CA that signed the pair.
	Epoch int64
}

// Kind is what an [Action] does.
type Kind string

// What there is to do.
const (
	// Wait does nothing until Action.At.
	Wait Kind = "Wait"
	// CreateCA makes a new CA and changes State.CA only.
	CreateCA Kind = "CreateCA"
	// IssueLeaf makes a new leaf and changes State.Serving only.
	IssueLeaf Kind = "IssueLeaf"
	// PublishBundle keeps the leaf and changes the rest of State.Serving.
	PublishBundle Kind = "PublishBundle"
)

// Action is the one thing to do now.
type Action struct {
	Kind Kind
	// Reason says in words why; it is empty for Wait.
	Reason string
	// At is, for Wait, when there may be something to do.
	At time.Time
}

// Next decides what to do now. Every action is one write of one Secret, and
// after any of them, or none, the state is one that Next goes on from.
func Next(s State, names Names, c Config, now time.Time) Action {
	if err := s.CA.Pair.checkCA(names, now); err != nil {
		return Action{Kind: CreateCA, Reason: err.Error()}
	}
	if s.CA.Epoch < s.Serving.Epoch {
		return Action{Kind: CreateCA, Reason: "the CA is older than what is served: it was restored from a copy"}
	}
	ca := s.CA.Pair.Certificate()
	caDue := due(ca, c.CARenewAfter, c.CALifetime)
	if !now.Before(caDue) {
		return Action{Kind: CreateCA, Reason: "the CA has reached the age at which it is replaced"}
	}
	return nextServing(s, names, c, now, caDue)
}

func nextServing(s State, names Names, c Config, now, caDue time.Time) Action {
	trusted := s.CA.trusted(now)
	if err := s.Serving.Pair.Check(trusted, names, now); err != nil {
		return Action{Kind: IssueLeaf, Reason: err.Error()}
	}
	leaf := s.Serving.Pair.Certificate()
	if !names.equal(leaf) {
		return Action{Kind: IssueLeaf, Reason: "the server names have changed"}
	}
	leafDue := due(leaf, c.LeafRenewAfter, c.LeafLifetime)
	current := leaf.CheckSignatureFrom(s.CA.Pair.Certificate()) == nil
	if !current {
		leafDue = s.switchTime(c)
	}
	switch {
	case !now.Before(leafDue) && current:
		return Action{Kind: IssueLeaf, Reason: "the leaf has reached the age at which it is replaced"}
	case !now.Before(leafDue):
		return Action{Kind: IssueLeaf, Reason: "the CA has changed"}
	case !s.Serving.Bundle.Equal(trusted):
		return Action{Kind: PublishBundle, Reason: "the published bundle is not the trusted one"}
	case current && s.Serving.Epoch != s.CA.Epoch:
		return Action{Kind: PublishBundle, Reason: "the published epoch is not that of the CA"}
	}
	return Action{Kind: Wait, At: earliest(caDue, leafDue, s.CA.dropTime(now))}
}

// switchTime is when a good leaf of the previous CA gives way to one of the
// current CA: when the current CA has been published long enough, or when the
// leaf cannot wait that long.
func (s State) switchTime(c Config) time.Time {
	leaf := s.Serving.Pair.Certificate()
	published := start(s.CA.Pair.Certificate()).Add(c.Overlap)
	return earliest(published, leaf.NotAfter.Add(-MinimumLeft(leaf)))
}

// trusted is the bundle that belongs to the authority.
func (a Authority) trusted(now time.Time) Bundle {
	roots := []*x509.Certificate{a.Pair.Certificate()}
	if mayStayTrusted(a.Previous, now) {
		roots = append(roots, a.Previous)
	}
	return Bundle{roots: canonicalRoots(roots)}
}

// dropTime is when the previous CA leaves the bundle; zero if there is none.
func (a Authority) dropTime(now time.Time) time.Time {
	if !mayStayTrusted(a.Previous, now) {
		return time.Time{}
	}
	return a.Previous.NotAfter.Add(time.Second)
}

func mayStayTrusted(ca *x509.Certificate, now time.Time) bool {
	return ca != nil && checkIsCA(ca) == nil && !now.After(ca.NotAfter)
}

// Apply carries an action out and returns the state that is to be stored.
func Apply(s State, a Action, names Names, c Config, now time.Time, random io.Reader) (State, error) {
	var err error
	switch a.Kind {
	case CreateCA:
		s.CA, err = s.nextAuthority(names, c, now, random)
	case IssueLeaf:
		s.Serving, err = s.nextLeaf(names, c, now, random)
	case PublishBundle:
		s.Serving.Bundle = s.CA.trusted(now)
		if s.Serving.Pair.Certificate().CheckSignatureFrom(s.CA.Pair.Certificate()) == nil {
			s.Serving.Epoch = s.CA.Epoch
		}
	case Wait:
	default:
		err = fmt.Errorf("action %q is unknown", a.Kind)
	}
	return s, err
}

func (s State) nextAuthority(names Names, c Config, now time.Time, random io.Reader) (Authority, error) {
	ca, err := newCA(names, c, now, random)
	if err != nil {
		return Authority{}, fmt.Errorf("creating a CA: %w", err)
	}
	epoch := min(max(s.CA.Epoch, s.Serving.Epoch), MaxEpoch-1) + 1
	return Authority{Pair: ca, Previous: s.stillNeeded(now), Epoch: epoch}, nil
}

// stillNeeded is the root that has to stay trusted beside a new CA: the one
// that the served leaf needs, whichever copy of it is left, or else the CA
// that is replaced.
func (s State) stillNeeded(now time.Time) *x509.Certificate {
	current := s.CA.Pair.Certificate()
	for _, root := range append([]*x509.Certificate{current, s.CA.Previous}, s.Serving.Bundle.roots...) {
		if !mayStayTrusted(root, now) {
			continue
		}
		if s.Serving.Pair.Check(Bundle{roots: []*x509.Certificate{root}}, Names{}, now) == nil {
			return root
		}
	}
	if mayStayTrusted(current, now) {
		return current
	}
	return nil
}

func (s State) nextLeaf(names Names, c Config, now time.Time, random io.Reader) (Serving, error) {
	bundle := s.CA.trusted(now)
	leaf, err := newLeaf(s.CA.Pair, names, c, now, random)
	if err != nil {
		return Serving{}, fmt.Errorf("issuing a leaf: %w", err)
	}
	if err := leaf.Check(bundle, names, now); err != nil {
		return Serving{}, fmt.Errorf("checking the new leaf: %w", err)
	}
	return Serving{Pair: leaf, Bundle: bundle, Epoch: s.CA.Epoch}, nil
}

// due is when a certificate has to be replaced. A certificate with a shorter
// life than the configured one is replaced after the same share of its life.
func due(c *x509.Certificate, after, lifetime time.Duration) time.Time {
	life := c.NotAfter.Sub(start(c))
	share := time.Duration(float64(life) * (float64(after) / float64(lifetime)))
	return start(c).Add(min(after, share))
}

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
