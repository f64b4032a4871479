package pki

import (
	"crypto/x509"
	"slices"
	"time"
)

// MaxEpoch bounds the epoch, so that a manually edited one cannot overflow.
const MaxEpoch = 1 << 62

// State is the content of the two Secrets. A part that is missing or unusable is
// zero.
type State struct {
	CA      Authority
	Serving Serving
}

// Authority is the CA that signs the serving certificate. The leader maintains it.
type Authority struct {
	// Pair has no key if the issuer is external.
	Pair Pair
	// Previous is the CA before this one, while it is still trusted.
	Previous *x509.Certificate
	// CrossCertificate certifies this CA's key and name with the key of the previous
	// CA. Clients that trust only the previous CA verify the serving certificate
	// through it.
	CrossCertificate *x509.Certificate
	// Epoch counts the CAs. It never goes back.
	Epoch int64
	// PreviousRemoved is when Previous was removed; zero before that, and for a first
	// CA.
	PreviousRemoved time.Time
	// LastRequest is the last handled value of the annotation that requests a
	// rotation.
	LastRequest string
	// Path is the secret first segment of the paths that API servers call after the
	// rotation to this CA. Every CA has its own path.
	Path string
}

// Serving is the certificate that replicas present and the bundle that API servers
// trust.
type Serving struct {
	Pair   Pair
	Bundle Bundle
	// Epoch is the epoch of the CA that signed the pair.
	Epoch int64
	// TrustEpoch is the epoch of the authority that the bundle belongs to.
	TrustEpoch int64
	// Paths are the secret paths that replicas accept. The first is the one
	// in the webhook configurations.
	Paths []string
}

// Observed is the leader's input to [Next] besides the stored State.
type Observed struct {
	Clocks Clocks
	// Request is the value of the annotation that requests a rotation. The value of
	// LastRequest requests nothing.
	Request string
	// Memory is the authority that this process last read or wrote, and what it
	// serves.
	Memory State
	// Published describes the webhook configurations in the API server.
	Published Publication
	// External is the certificate of an external issuer; nil if Ostiary issues its
	// own.
	External *ExternalCertificate
	// Replicas are those that API servers may call, including terminating ones.
	Replicas []Replica
}

// Publication summarizes the webhook configurations in the API server.
type Publication struct {
	// Roots are the roots in any of their bundles.
	Roots []*x509.Certificate
	// Epoch is the highest epoch in any of them.
	Epoch int64
	// Paths are the distinct secret paths in any of them.
	Paths []string
	// Current means that each of them has the stored bundle and path.
	Current bool
	// For is how long Current has been true, by a monotonic clock. A new leader
	// starts at zero.
	For time.Duration
}

// Replica is what one replica reports.
type Replica struct {
	Name string
	// Epoch is the lowest epoch that it may still present; 0 without a certificate.
	Epoch int64
}

// Phase is the phase of a rotation. It is derived from the stored state, not
// stored.
type Phase string

// The phases.
const (
	// PhaseSteady means that no rotation is in progress.
	PhaseSteady Phase = "Steady"
	// PhaseTrusting means that the new CA is being published before it signs a
	// serving certificate.
	PhaseTrusting Phase = "Trusting"
	// PhaseServing means that replicas switch to a serving certificate of the new CA
	// while the old CA is still trusted.
	PhaseServing Phase = "Serving"
)

// Phases returns all phases.
func Phases() []Phase { return []Phase{PhaseSteady, PhaseTrusting, PhaseServing} }

// Phase returns the phase of the rotation.
func (s State) Phase() Phase {
	switch {
	case s.CA.Previous == nil:
		return PhaseSteady
	case s.CA.signed(s.Serving.Pair):
		return PhaseServing
	}
	return PhaseTrusting
}

// signed reports whether this CA signed the pair, and its chain contains the
// cross-certificate if there is one. External certificates may have intermediates
// in between.
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

// crossCertified reports whether clients that trust only the previous CA verify a
// serving certificate of this one.
func (a Authority) crossCertified(clocks Clocks) bool {
	return a.CrossCertificate != nil && a.Previous != nil &&
		a.CrossCertificate.CheckSignatureFrom(a.Previous) == nil &&
		clocks.passesByEither(func(now time.Time) error { return checkValidity(a.CrossCertificate, now) }) == nil
}

// trusted returns the trust bundle of the authority.
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

// Follows reports whether the authority may replace a remembered one: its epoch is
// later, it is equal, or it is equal with the rotation ended.
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

// Remembered returns the authority that a process remembers after it has read the
// stored state.
func (s State) Remembered(o Observed) Authority {
	if !s.CA.Pair.IsZero() && s.succeeds(o) {
		return s.CA
	}
	return o.Memory.CA
}

// succeeds reports whether the stored authority may replace the remembered one. If
// two leaders that lost the same copy created one each, the one in use wins, so
// that both agree.
func (s State) succeeds(o Observed) bool {
	remembered := o.Memory.CA
	if s.CA.Follows(remembered) {
		return true
	}
	return s.CA.Epoch == remembered.Epoch && !s.CA.Pair.IsZero() && o.trustProgress(s, s.CA) > o.trustProgress(s, remembered)
}

// trustProgress returns how far an authority has been published: 0 to 3.
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

// allServe reports whether no replica can present a certificate older than the
// epoch. It is false without replicas.
func (o Observed) allServe(epoch int64) bool {
	return len(o.Replicas) > 0 && !slices.ContainsFunc(o.Replicas, func(r Replica) bool { return r.Epoch < epoch })
}

// anyServesBefore reports whether a replica can present a certificate older than
// the epoch.
func (o Observed) anyServesBefore(epoch int64) bool {
	return slices.ContainsFunc(o.Replicas, func(r Replica) bool { return 0 < r.Epoch && r.Epoch < epoch })
}

// anyServes reports whether any replica presents a certificate.
func (o Observed) anyServes() bool {
	return slices.ContainsFunc(o.Replicas, func(r Replica) bool { return r.Epoch > 0 })
}

// epoch returns the highest known epoch, besides that of the stored CA.
func (o Observed) epoch(s State) int64 {
	highest := max(s.Serving.Epoch, s.Serving.TrustEpoch, o.Published.Epoch, o.Memory.CA.Epoch, o.Memory.Serving.Epoch, o.Memory.Serving.TrustEpoch)
	for _, r := range o.Replicas {
		highest = max(highest, r.Epoch)
	}
	return min(highest, MaxEpoch)
}
