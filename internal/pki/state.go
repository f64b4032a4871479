package pki

import (
	"crypto/x509"
	"slices"
	"time"
)

// MaxEpoch bounds the epoch, so that an edited one cannot overflow.
const MaxEpoch = 1 << 62

// State is what is stored. A part that is missing or cannot be used is zero.
type State struct {
	CA      Authority
	Serving Serving
}

// Authority is the CA that signs, kept by the leader.
type Authority struct {
	// Pair lacks the key where somebody else keeps it.
	Pair Pair
	// Previous is the CA that this one follows, while it is still trusted.
	Previous *x509.Certificate
	// CrossCertificate is this CA's key and name, certified by the CA before it. With it
	// in the chain, whoever trusts only the CA before accepts the leaf too.
	CrossCertificate *x509.Certificate
	// Epoch counts the CAs. It never goes back.
	Epoch int64
	// PreviousRemoved is when Previous left; zero while it is there, and for a first CA.
	PreviousRemoved time.Time
	// LastRequest is the request for a rotation that this CA is the answer to.
	LastRequest string
	// Path is the secret first segment of the paths that API servers call, once
	// the rotation to this CA has ended. Every CA has a path of its own.
	Path string
}

// Serving is what the replicas present and what API servers are told to trust.
type Serving struct {
	Pair   Pair
	Bundle Bundle
	// Epoch is that of the CA that signed the pair.
	Epoch int64
	// TrustEpoch is that of the authority that the bundle belongs to.
	TrustEpoch int64
	// Paths are the secret paths that replicas accept. The first is the one
	// that configurations carry.
	Paths []string
}

// Observed is what the leader sees besides what is stored.
type Observed struct {
	Clocks Clocks
	// Request is what somebody asks a rotation with; a value that has been
	// answered asks for nothing.
	Request string
	// Memory is what this process knows itself: the authority that it read or
	// wrote last, and what it serves.
	Memory State
	// Published is what the configurations in the API server say.
	Published Publication
	// ExternalCertificate is the leaf that somebody else issues; nil where Ostiary does.
	External *ExternalCertificate
	// Replicas are those that API servers may call, terminating ones included.
	Replicas []Replica
}

// Publication is what the configurations in the API server carry.
type Publication struct {
	// Roots are all that stand in any of them.
	Roots []*x509.Certificate
	// Epoch is the highest that any of them names.
	Epoch int64
	// Paths are all secret paths that stand in any of them, each once.
	Paths []string
	// Current says that each of them carries the stored bundle and path.
	Current bool
	// For is how long this has been so, by a clock that does not jump. Whoever
	// has only begun to look begins at zero.
	For time.Duration
}

// Replica is what one replica says that it presents.
type Replica struct {
	Name string
	// Epoch is the lowest of what it may still present; 0 is nothing.
	Epoch int64
}

// Phase is where a rotation stands. It is not stored: it is read from what is.
type Phase string

// The phases.
const (
	// PhaseSteady is no rotation.
	PhaseSteady Phase = "Steady"
	// PhaseTrusting is a new CA that gets known before a leaf of it is used.
	PhaseTrusting Phase = "Trusting"
	// PhaseServing is a leaf of a new CA that replicas take into use, while the
	// old CA is trusted too.
	PhaseServing Phase = "Serving"
)

// Phases returns every phase there is.
func Phases() []Phase { return []Phase{PhaseSteady, PhaseTrusting, PhaseServing} }

// Phase says where the rotation stands.
func (s State) Phase() Phase {
	switch {
	case s.CA.Previous == nil:
		return PhaseSteady
	case s.CA.signed(s.Serving.Pair):
		return PhaseServing
	}
	return PhaseTrusting
}

// signed reports whether the pair is a leaf of this CA, with the bridge in its
// chain if there is one. Somebody else's may lead to it by intermediates.
func (a Authority) signed(p Pair) bool {
	if a.Pair.IsZero() || p.IsZero() {
		return false
	}
	if !a.Pair.HasKey() {
		return p.leadsTo(a.Pair.Certificate())
	}
	if p.Certificate().CheckSignatureFrom(a.Pair.Certificate()) != nil {
		return false
	}
	return a.CrossCertificate == nil || slices.ContainsFunc(p.chain, a.CrossCertificate.Equal)
}

// crossCertified reports whether a leaf of this CA is accepted by whoever trusts only
// the CA before it.
func (a Authority) crossCertified(clocks Clocks) bool {
	return a.CrossCertificate != nil && a.Previous != nil &&
		a.CrossCertificate.CheckSignatureFrom(a.Previous) == nil &&
		clocks.passesByEither(func(now time.Time) error { return checkValidity(a.CrossCertificate, now) }) == nil
}

// trusted is the bundle that belongs to the authority.
func (a Authority) trusted(clocks Clocks) Bundle {
	roots := []*x509.Certificate{a.Pair.Certificate()}
	if mayStayTrusted(a.Previous, clocks) {
		roots = append(roots, a.Previous)
	}
	return Bundle{roots: canonicalRoots(roots)}
}

func mayStayTrusted(ca *x509.Certificate, clocks Clocks) bool {
	return ca != nil && checkIsCA(ca) == nil && clocks.passesByEither(func(now time.Time) error {
		if now.After(ca.NotAfter) {
			return errExpired
		}
		return nil
	}) == nil
}

// Follows reports whether an authority may take the place of one that is
// remembered: it is of a later epoch, the same, or the same with the rotation
// ended.
func (a Authority) Follows(remembered Authority) bool {
	switch {
	case a.Epoch != remembered.Epoch:
		return a.Epoch > remembered.Epoch
	case remembered.Pair.IsZero():
		return true
	case a.Pair.IsZero() || remembered.Pair.HasKey() && !a.Pair.HasKey() || !a.Pair.Certificate().Equal(remembered.Pair.Certificate()) || !sameCertificate(a.CrossCertificate, remembered.CrossCertificate):
		return false
	}
	return a.Path == remembered.Path && (sameCertificate(a.Previous, remembered.Previous) || a.Previous == nil && !a.PreviousRemoved.IsZero())
}

// Remembered is the authority that a process remembers once it has seen what is
// stored.
func (s State) Remembered(o Observed) Authority {
	if !s.CA.Pair.IsZero() && s.succeeds(o) {
		return s.CA
	}
	return o.Memory.CA
}

// succeeds reports whether the stored authority may take the place of the one
// that is remembered. Two leaders that lost the same copy can have made one each:
// then it is the one that is in use, so that both agree.
func (s State) succeeds(o Observed) bool {
	remembered := o.Memory.CA
	if s.CA.Follows(remembered) {
		return true
	}
	return s.CA.Epoch == remembered.Epoch && !s.CA.Pair.IsZero() && o.trustProgress(s, s.CA) > o.trustProgress(s, remembered)
}

// trustProgress is how far the trust in an authority has come.
func (o Observed) trustProgress(s State, a Authority) int {
	root, use := a.Pair.Certificate(), 0
	if slices.ContainsFunc(o.Published.Roots, root.Equal) {
		use += 2
	}
	if slices.ContainsFunc(s.Serving.Bundle.roots, root.Equal) {
		use++
	}
	return use
}

func sameCertificate(a, b *x509.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

// allServe reports whether every replica has given up what is older than the
// epoch. No replica at all proves nothing.
func (o Observed) allServe(epoch int64) bool {
	return len(o.Replicas) > 0 && !slices.ContainsFunc(o.Replicas, func(r Replica) bool { return r.Epoch < epoch })
}

// anyServesBefore reports whether a replica can present what is older than the
// epoch.
func (o Observed) anyServesBefore(epoch int64) bool {
	return slices.ContainsFunc(o.Replicas, func(r Replica) bool { return 0 < r.Epoch && r.Epoch < epoch })
}

// anyServes reports whether any replica presents a certificate.
func (o Observed) anyServes() bool {
	return slices.ContainsFunc(o.Replicas, func(r Replica) bool { return r.Epoch > 0 })
}

// epoch is the highest that is known of, besides that of the stored CA.
func (o Observed) epoch(s State) int64 {
	highest := max(s.Serving.Epoch, s.Serving.TrustEpoch, o.Published.Epoch, o.Memory.CA.Epoch, o.Memory.Serving.Epoch, o.Memory.Serving.TrustEpoch)
	for _, r := range o.Replicas {
		highest = max(highest, r.Epoch)
	}
	return min(highest, MaxEpoch)
}
