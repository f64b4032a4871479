package pki

import (
	"crypto/x509"
	"errors"
	"slices"
	"time"
)

// Kind is what an [Action] does.
type Kind string

// What there is to do.
const (
	// Wait does nothing until Action.At.
	Wait Kind = "Wait"
	// CreateCA makes a new CA, and changes State.CA only.
	CreateCA Kind = "CreateCA"
	// RestoreCA puts back the CA that this process remembers.
	RestoreCA Kind = "RestoreCA"
	// IssueLeaf makes a new leaf, and changes State.Serving only.
	IssueLeaf Kind = "IssueLeaf"
	// RestoreLeaf puts back the leaf that this process serves.
	RestoreLeaf Kind = "RestoreLeaf"
	// PublishBundle keeps the leaf and changes the rest of State.Serving.
	PublishBundle Kind = "PublishBundle"
	// Retire ends the trust in the previous CA.
	Retire Kind = "Retire"
)

// Kinds returns every kind that changes something.
func Kinds() []Kind {
	return []Kind{CreateCA, RestoreCA, IssueLeaf, RestoreLeaf, PublishBundle, Retire}
}

// OfCA reports whether an action changes the Secret of the CA, rather than the
// one of the leaf.
func (k Kind) OfCA() bool { return k == CreateCA || k == RestoreCA || k == Retire }

// Action is the one thing to do now.
type Action struct {
	Kind Kind
	// CrossCertified says, for CreateCA, that the CA before vouches for the new one.
	CrossCertified bool
	// Reason says in words why, or what is waited for.
	Reason string
	// At is, for Wait, when there may be something to do.
	At time.Time
}

// recheckInterval is how soon to look again for what others do.
const recheckInterval = 2 * time.Second

// Next decides what to do now. Every action is one write of one Secret, and
// after any of them, or none, the state is one that Next goes on from.
func Next(s State, o Observed, names Names, c Config) Action {
	if problem := s.caProblem(o, names); problem != nil {
		return s.replaceCA(o, names, problem)
	}
	if reason := s.externalCA(o, names, c); reason != "" {
		return s.createCA(o, names, reason)
	}
	wanted := s.rotationReason(o, c)
	hindrance := s.rotationBlocker(o, names, c)
	if wanted != "" && hindrance == "" {
		return Action{Kind: CreateCA, CrossCertified: true, Reason: wanted}
	}
	a := s.nextServing(o, names, c)
	if a.Kind == Wait && wanted != "" && a.Reason == "" {
		a.Reason = wanted + ", but " + hindrance
		a.At = earliest(a.At, o.Clocks.Now().Add(recheckInterval))
	}
	return a
}

// caProblem is why the stored CA must not sign; nil if it may.
func (s State) caProblem(o Observed, names Names) error {
	if err := s.CA.Pair.checkCAFor(o, names); err != nil {
		return err
	}
	switch {
	case !s.succeeds(o):
		return errors.New("the CA is not the one that was there before")
	case s.CA.Epoch < o.epoch(s) && !s.isCAPublished(o):
		return errors.New("the CA is older than what is served or published: it was restored from a copy")
	case s.isUnknownCA(o):
		return errors.New("the CA is not among the trusted ones of its own epoch")
	}
	return nil
}

// isCAPublished reports whether every configuration carries a bundle with the CA in it.
// Where something is of a later epoch all the same, somebody has edited that.
func (s State) isCAPublished(o Observed) bool {
	return s.Serving.TrustEpoch == s.CA.Epoch && o.Published.Current && slices.ContainsFunc(s.Serving.Bundle.roots, s.CA.Pair.Certificate().Equal)
}

// isUnknownCA reports whether the stored CA was put there by somebody else: what
// is trusted in its epoch is known, and it is not among that.
func (s State) isUnknownCA(o Observed) bool {
	ca := s.CA.Pair.Certificate()
	known := sameCertificate(o.Memory.CA.Pair.Certificate(), ca) ||
		slices.ContainsFunc(s.Serving.Bundle.roots, ca.Equal) || slices.ContainsFunc(o.Published.Roots, ca.Equal)
	return !known && s.Serving.TrustEpoch == s.CA.Epoch && len(s.Serving.Bundle.roots) > 0
}

// replaceCA restores the CA from memory or makes another one. In the middle of
// a rotation that is put off until all replicas need the same root, because a
// bundle has room for two.
func (s State) replaceCA(o Observed, names Names, problem error) Action {
	known := o.Memory.CA
	if known.Pair.checkCAFor(o, names) == nil && known.Epoch >= max(s.CA.Epoch, o.epoch(s)) {
		return Action{Kind: RestoreCA, Reason: problem.Error()}
	}
	return s.createCA(o, names, problem.Error())
}

// createCA makes another CA, which nobody vouches for, or takes that of the
// leaf that somebody else issues.
func (s State) createCA(o Observed, names Names, problem string) Action {
	if err := s.ExternalProblem(o, names); err != nil && !s.canProvideLeaf(o, names) {
		return Action{Kind: Wait, Reason: problem + "; what is offered is of no use: " + err.Error(), At: o.Clocks.Now().Add(recheckInterval)}
	}
	pair, epoch := s.presented(o)
	inFlight := len(s.Serving.Bundle.roots) > 1 || len(o.Published.Roots) > 1
	if inFlight && !pair.IsZero() && o.anyServesBefore(epoch) {
		if own := s.withOwnLeaf(o); s.Serving.Pair.IsZero() && own.Pair.checkAt(o.Clocks, own.Bundle, names) == nil {
			return Action{Kind: RestoreLeaf, Reason: "other replicas need the leaf that this one serves"}
		}
		return Action{Kind: Wait, Reason: problem + "; waiting for every replica to serve the same leaf", At: o.Clocks.Now().Add(recheckInterval)}
	}
	return Action{Kind: CreateCA, Reason: problem}
}

// presented is the newest leaf that replicas can have, as far as it is known.
func (s State) presented(o Observed) (Pair, int64) {
	stored, own := s.Serving, o.Memory.Serving
	if own.Pair.IsZero() || !stored.Pair.IsZero() && stored.Epoch >= own.Epoch {
		return stored.Pair, stored.Epoch
	}
	return own.Pair, own.Epoch
}

// rotationReason is why the CA should be replaced although it is good; empty
// if it should not.
func (s State) rotationReason(o Observed, c Config) string {
	switch {
	case o.External != nil:
		return "" // whoever issues the leaf decides
	case o.Request != "" && o.Request != s.CA.LastRequest:
		return "a rotation was asked for"
	case s.CA.Epoch < o.epoch(s):
		return "something served or published is of a later epoch"
	case !o.Clocks.Now().Before(s.caDue(c)):
		return "the CA has reached the age at which it is replaced"
	}
	return ""
}

// rotationBlocker is why a rotation cannot begin now; empty if it can. The
// time after the last one is for API servers that are behind: they may hold
// the bundle before the present one, but not the one before that.
func (s State) rotationBlocker(o Observed, names Names, c Config) string {
	switch {
	case s.CA.Previous != nil:
		return "the last rotation has not ended"
	case !o.Clocks.Agree():
		return "the clocks of this replica and of the API server disagree"
	case !s.CA.PreviousRemoved.IsZero() && o.Clocks.Now().Sub(s.CA.PreviousRemoved) < c.Overlap:
		return "API servers may be behind by a rotation until " + s.CA.PreviousRemoved.Add(c.Overlap).UTC().Format(time.RFC3339)
	case !s.CA.signed(s.Serving.Pair) || s.checkLeaf(o, names) != nil || !s.isBundlePublished(o):
		return "the present CA is not in use everywhere"
	case len(s.Serving.Paths) > 1:
		return "API servers may still call the path before"
	case !o.allServe(s.CA.Epoch):
		return "not every replica serves a leaf of the present CA"
	}
	return ""
}

// checkLeaf reports why the stored leaf is not one to serve.
func (s State) checkLeaf(o Observed, names Names) error {
	return s.Serving.Pair.checkAt(o.Clocks, s.CA.trusted(o.Clocks), names)
}

// isBundleStored reports whether the stored bundle is the one that the CA asks for.
func (s State) isBundleStored(o Observed) bool {
	return s.Serving.TrustEpoch == s.CA.Epoch && s.Serving.Bundle.Equal(s.CA.trusted(o.Clocks))
}

// isBundlePublished reports whether every configuration carries that bundle.
func (s State) isBundlePublished(o Observed) bool { return s.isBundleStored(o) && o.Published.Current }

// mayServe reports whether a leaf of the CA is accepted by every API server: no
// other was trusted before, that one vouches for this, or this one has been
// known for long enough.
func (s State) mayServe(o Observed, c Config) bool {
	return s.CA.Previous == nil || s.CA.crossCertified(o.Clocks) || s.isBundlePublished(o) && o.Published.For >= c.Overlap
}

func (s State) nextServing(o Observed, names Names, c Config) Action {
	if a, ok := s.nextLeaf(o, names, c); ok {
		return a
	}
	signed := s.CA.signed(s.Serving.Pair)
	switch {
	case !s.isBundleStored(o):
		return Action{Kind: PublishBundle, Reason: "the stored bundle is not the trusted one"}
	case signed && s.Serving.Epoch != s.CA.Epoch:
		return Action{Kind: PublishBundle, Reason: "the stored epoch is not that of the CA"}
	case !slices.Equal(s.Serving.Paths, s.paths(o, c)):
		return Action{Kind: PublishBundle, Reason: "the stored paths are not the accepted ones"}
	case s.CA.Previous == nil:
		return Action{Kind: Wait, At: s.waitUntil(o, c)}
	case !signed:
		return Action{Kind: Wait, Reason: "the new CA has to be known before it is used", At: o.Clocks.Now().Add(recheckInterval)}
	}
	return s.nextRetirement(o)
}

// waitUntil is how long there is nothing to do. What is due by one clock only is
// looked at again after a while, and what others have yet to publish soon.
func (s State) waitUntil(o Observed, c Config) time.Time {
	now := o.Clocks.Now()
	if !o.Published.Current {
		return now.Add(recheckInterval)
	}
	if at := earliest(s.caDue(c), s.leafDue(c)); o.External == nil && at.After(now) {
		return at
	}
	return now.Add(time.Minute)
}

// nextRetirement ends the trust in the previous CA as soon as nobody can
// present what needs it.
func (s State) nextRetirement(o Observed) Action {
	a := Action{Kind: Wait, At: o.Clocks.Now().Add(recheckInterval)}
	switch {
	case !o.Published.Current:
		a.Reason = "not every configuration carries the new CA"
	case !o.allServe(s.CA.Epoch):
		a.Reason = "not every replica serves a leaf of the new CA"
	case !o.Clocks.Agree():
		a.Reason = "the clocks of this replica and of the API server disagree"
	default:
		return Action{Kind: Retire, Reason: "every replica serves a leaf of the new CA"}
	}
	return a
}

// nextLeaf says what to do about the leaf; false if nothing.
func (s State) nextLeaf(o Observed, names Names, c Config) (Action, bool) {
	issue := func(reason string) (Action, bool) { return Action{Kind: IssueLeaf, Reason: reason}, true }
	if err := s.checkLeaf(o, names); err != nil {
		return s.replaceLeaf(o, names, c, err)
	}
	if o.External != nil {
		return s.nextExternal(o, names, c)
	}
	leaf := s.Serving.Pair.Certificate()
	switch {
	case !s.CA.signed(s.Serving.Pair):
		if s.mayServe(o, c) {
			return issue("the CA has changed")
		}
		if !o.Clocks.Now().Before(leaf.NotAfter.Add(-c.MinimumLeft(leaf))) {
			return issue("the CA has changed, and the leaf cannot wait")
		}
	case !names.equal(leaf):
		return issue("the server names have changed")
	case o.Clocks.Agree() && !o.Clocks.Now().Before(s.leafDue(c)), !s.isValidLongEnough(o.Clocks, c):
		return issue("the leaf has reached the age at which it is replaced")
	}
	return Action{}, false
}

// replaceLeaf says what to do when the stored leaf is of no use. While API
// servers may not know the CA yet, replicas go on with what they have, unless
// that is of no use either.
func (s State) replaceLeaf(o Observed, names Names, c Config, problem error) (Action, bool) {
	own := o.Memory.Serving
	var rejected *RejectedError
	useless := errors.As(problem, &rejected) && (rejected.Reason == ReasonNames || rejected.Reason == ReasonValidity)
	possible := s.canProvideLeaf(o, names)
	switch {
	case possible && s.mayServe(o, c):
		return Action{Kind: IssueLeaf, Reason: problem.Error()}, true
	case own.Epoch >= s.Serving.Epoch && own.Pair.checkAt(o.Clocks, s.CA.trusted(o.Clocks), names) == nil:
		return Action{Kind: RestoreLeaf, Reason: problem.Error()}, true
	case possible && (useless || !o.anyServes()):
		return Action{Kind: IssueLeaf, Reason: problem.Error() + "; nobody has a better one"}, true
	}
	return Action{}, false
}

// isValidLongEnough reports whether the leaf is good for a while by both clocks, or as
// good as its CA lets it be.
func (s State) isValidLongEnough(clocks Clocks, c Config) bool {
	leaf, root := s.Serving.Pair.Certificate(), s.CA.Pair.Certificate()
	until := earliest(clocks.late().Add(c.LeafLifetime-c.LeafRenewAfter), root.NotAfter)
	return !leaf.NotBefore.After(clocks.early()) && !leaf.NotAfter.Before(until.Truncate(time.Second))
}

// leafDue is when the leaf has to be replaced. A leaf that was made for a
// shorter life than the configured one is replaced at once.
func (s State) leafDue(c Config) time.Time {
	if s.Serving.Pair.IsZero() {
		return time.Time{}
	}
	leaf := s.Serving.Pair.Certificate()
	byAge := c.start(leaf).Add(c.LeafRenewAfter)
	if leaf.NotAfter.Equal(s.CA.Pair.Certificate().NotAfter) {
		return byAge
	}
	return earliest(byAge, leaf.NotAfter.Add(c.LeafRenewAfter-c.LeafLifetime))
}

// caDue is when the CA has to be replaced. One with a shorter life than the
// configured one is replaced after the same share of its life.
func (s State) caDue(c Config) time.Time {
	ca := s.CA.Pair.Certificate()
	life := ca.NotAfter.Sub(c.start(ca))
	share := time.Duration(float64(life) * (float64(c.CARenewAfter) / float64(c.CALifetime)))
	return c.start(ca).Add(min(c.CARenewAfter, share))
}

// stillNeeded is the root that has to stay trusted beside a new CA that nobody
// vouches for: the one that the presented leaf needs, whichever copy of it is
// left.
func (s State) stillNeeded(o Observed) *x509.Certificate {
	roots := slices.Concat(
		[]*x509.Certificate{s.CA.Pair.Certificate(), s.CA.Previous, o.Memory.CA.Pair.Certificate(), o.Memory.CA.Previous},
		s.Serving.Bundle.roots, o.Memory.Serving.Bundle.roots, o.Published.Roots)
	roots = slices.DeleteFunc(roots, func(root *x509.Certificate) bool { return !mayStayTrusted(root, o.Clocks) })
	for _, pair := range []Pair{s.Serving.Pair, o.Memory.Serving.Pair} {
		if root := pair.root(roots, o.Clocks); root != nil {
			return root
		}
	}
	if len(roots) == 0 || !o.anyServes() {
		return nil
	}
	// Replicas present something that is not at hand. While a new CA gets known
	// that is of the old one; a bridge makes the old one do for both.
	if o.anyServesBefore(max(s.Serving.TrustEpoch, o.Published.Epoch)) {
		return oldest(roots, s.CA, o.Memory.CA)
	}
	return newest(roots, s.CA, o.Memory.CA)
}

// oldest is the first of the roots. Who follows whom is believed before dates,
// which are of clocks that can have been wrong.
func oldest(roots []*x509.Certificate, known ...Authority) *x509.Certificate {
	followers := func(root *x509.Certificate) bool {
		return slices.ContainsFunc(known, func(a Authority) bool {
			return a.Previous != nil && slices.ContainsFunc(roots, a.Previous.Equal) && sameCertificate(a.Pair.Certificate(), root)
		})
	}
	return slices.MinFunc(excluding(roots, followers), byDate)
}

// newest is the last of them.
func newest(roots []*x509.Certificate, known ...Authority) *x509.Certificate {
	followed := func(root *x509.Certificate) bool {
		return slices.ContainsFunc(known, func(a Authority) bool {
			return sameCertificate(a.Previous, root) && !a.Pair.IsZero() && slices.ContainsFunc(roots, a.Pair.Certificate().Equal)
		})
	}
	return slices.MaxFunc(excluding(roots, followed), byDate)
}

func byDate(a, b *x509.Certificate) int { return a.NotBefore.Compare(b.NotBefore) }

// excluding leaves out what is so, or nothing where all of them are.
func excluding(roots []*x509.Certificate, so func(*x509.Certificate) bool) []*x509.Certificate {
	if left := slices.DeleteFunc(slices.Clone(roots), so); len(left) > 0 {
		return left
	}
	return roots
}
