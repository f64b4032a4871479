package pki

import (
	"crypto/x509"
	"errors"
	"slices"
	"time"
)

// Kind is the kind of an [Action].
type Kind string

// The kinds of actions.
const (
	// Wait does nothing until Action.At.
	Wait Kind = "Wait"
	// CreateCA creates a new CA. It changes only State.CA.
	CreateCA Kind = "CreateCA"
	// RestoreCA restores the CA that this process remembers.
	RestoreCA Kind = "RestoreCA"
	// IssueLeaf issues a new leaf. It changes only State.Serving.
	IssueLeaf Kind = "IssueLeaf"
	// RestoreLeaf restores the leaf that this process serves.
	RestoreLeaf Kind = "RestoreLeaf"
	// PublishBundle changes State.Serving except for the leaf.
	PublishBundle Kind = "PublishBundle"
	// Retire ends trust in the previous CA.
	Retire Kind = "Retire"
)

// Kinds returns every kind that writes.
func Kinds() []Kind {
	return []Kind{CreateCA, RestoreCA, IssueLeaf, RestoreLeaf, PublishBundle, Retire}
}

// OfCA reports whether the action changes the Secret of the CA instead of the
// serving Secret.
func (k Kind) OfCA() bool { return k == CreateCA || k == RestoreCA || k == Retire }

// Action is the next step.
type Action struct {
	Kind Kind
	// CrossCertified means, for CreateCA, that the current CA signs a
	// cross-certificate for the new one.
	CrossCertified bool
	// Reason says in words why, or what the action waits for.
	Reason string
	// At is, for Wait, when to call Next again at the latest.
	At time.Time
}

// recheckInterval is how soon to check again for changes by others.
const recheckInterval = 2 * time.Second

// Next returns the next step. Every action is one write of one Secret, and Next
// continues from the state after any of them, even if writes are lost.
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

// caProblem returns why the stored CA must not sign; nil if it may.
func (s State) caProblem(o Observed, names Names) error {
	if err := s.CA.Pair.checkCAFor(o, names); err != nil {
		return err
	}
	switch {
	case !s.succeeds(o):
		return errors.New("the CA was replaced by another one")
	case s.CA.Epoch < o.epoch(s) && !s.isCAPublished(o):
		return errors.New("the CA is older than the served or published one: it was restored from a backup")
	case s.isUnknownCA(o):
		return errors.New("the trust bundle of the CA's epoch does not contain it")
	case s.abandonsLeaf(s.CA, o, names):
		return errors.New("replicas may serve a certificate of another CA than this one and the one before")
	}
	return nil
}

// abandonsLeaf reports whether API servers that trust the bundle of a CA during its rotation reject the stored leaf, which
// the stored bundle verifies. A leader that had decided before the CA was replaced can store such a leaf afterwards, because
// the CA and the leaf are in two Secrets. After a rotation, no replica serves a leaf of another CA.
func (s State) abandonsLeaf(ca Authority, o Observed, names Names) bool {
	return ca.Previous != nil && s.Serving.Pair.checkAt(o.Clocks, s.Serving.Bundle, names) == nil &&
		s.Serving.Pair.checkAt(o.Clocks, ca.trusted(o.Clocks), names) != nil
}

// isCAPublished reports whether every configuration has a bundle with the CA. A
// later epoch found elsewhere is then a manual edit.
func (s State) isCAPublished(o Observed) bool {
	return s.Serving.TrustEpoch == s.CA.Epoch && o.Published.Current && slices.ContainsFunc(s.Serving.Bundle.roots, s.CA.Pair.Certificate().Equal)
}

// isUnknownCA reports whether the stored CA was not created here: the trust bundle
// of its epoch is known and does not contain it.
func (s State) isUnknownCA(o Observed) bool {
	ca := s.CA.Pair.Certificate()
	known := sameCertificate(o.Memory.CA.Pair.Certificate(), ca) ||
		slices.ContainsFunc(s.Serving.Bundle.roots, ca.Equal) || slices.ContainsFunc(o.Published.Roots, ca.Equal)
	return !known && s.Serving.TrustEpoch == s.CA.Epoch && len(s.Serving.Bundle.roots) > 0
}

// replaceCA restores the CA from memory or creates another one. During a rotation,
// creation waits until all replicas need the same root, because a bundle has room
// for two.
func (s State) replaceCA(o Observed, names Names, problem error) Action {
	known := o.Memory.CA
	if known.Pair.checkCAFor(o, names) == nil && known.Epoch >= max(s.CA.Epoch, o.epoch(s)) && !s.abandonsLeaf(known, o, names) {
		return Action{Kind: RestoreCA, Reason: problem.Error()}
	}
	return s.createCA(o, names, problem.Error())
}

// createCA creates another CA without a cross-certificate, or trusts the CA of the
// external certificate.
func (s State) createCA(o Observed, names Names, problem string) Action {
	if err := s.ExternalProblem(o, names); err != nil && !s.canProvideLeaf(o, names) {
		return Action{Kind: Wait, Reason: problem + "; the external certificate is not usable: " + err.Error(), At: o.Clocks.Now().Add(recheckInterval)}
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

// presented returns the newest leaf that replicas may have, as far as it is known.
func (s State) presented(o Observed) (Pair, int64) {
	stored, own := s.Serving, o.Memory.Serving
	if own.Pair.IsZero() || !stored.Pair.IsZero() && stored.Epoch >= own.Epoch {
		return stored.Pair, stored.Epoch
	}
	return own.Pair, own.Epoch
}

// rotationReason returns why a valid CA should be replaced; "" if it should not.
func (s State) rotationReason(o Observed, c Config) string {
	switch {
	case o.External != nil:
		return "" // the external issuer decides
	case o.Request != "" && o.Request != s.CA.LastRequest:
		return "a rotation was requested"
	case s.CA.Epoch < o.epoch(s):
		return "a served or published certificate has a later epoch"
	case !o.Clocks.Now().Before(s.caDue(c)):
		return "the CA has reached its renewal age"
	}
	return ""
}

// rotationBlocker returns why a rotation cannot begin now; "" if it can. The pause
// after the last rotation is for API servers that are behind: they may have the
// previous bundle, but not the one before it.
func (s State) rotationBlocker(o Observed, names Names, c Config) string {
	switch {
	case s.CA.Previous != nil:
		return "the last rotation has not ended"
	case !o.Clocks.Agree():
		return "the clocks of this replica and of the API server disagree"
	case !s.CA.PreviousRemoved.IsZero() && o.Clocks.Now().Sub(s.CA.PreviousRemoved) < c.Overlap:
		return "API servers may still have the bundle before the last rotation until " + s.CA.PreviousRemoved.Add(c.Overlap).UTC().Format(time.RFC3339)
	case !s.CA.signed(s.Serving.Pair) || s.checkLeaf(o, names) != nil || !s.isBundlePublished(o):
		return "not every replica and configuration uses the current CA"
	case len(s.Serving.Paths) > 1:
		return "API servers may still call the previous path"
	case !o.allServe(s.CA.Epoch):
		return "not every replica serves a certificate of the current CA"
	}
	return ""
}

// checkLeaf returns why the stored leaf must not be served; nil if it may.
func (s State) checkLeaf(o Observed, names Names) error {
	return s.Serving.Pair.checkAt(o.Clocks, s.CA.trusted(o.Clocks), names)
}

// isBundleStored reports whether the stored bundle is the one of the CA.
func (s State) isBundleStored(o Observed) bool {
	return s.Serving.TrustEpoch == s.CA.Epoch && s.Serving.Bundle.Equal(s.CA.trusted(o.Clocks))
}

// isBundlePublished reports whether every configuration has that bundle.
func (s State) isBundlePublished(o Observed) bool { return s.isBundleStored(o) && o.Published.Current }

// mayServe reports whether every API server accepts a leaf of the CA: there is no
// previous CA, a cross-certificate, or the CA has been published for the overlap.
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
		return Action{Kind: PublishBundle, Reason: "the stored bundle is not that of the CA"}
	case signed && s.Serving.Epoch != s.CA.Epoch:
		return Action{Kind: PublishBundle, Reason: "the stored epoch is not that of the CA"}
	case !slices.Equal(s.Serving.Paths, s.paths(o, c)):
		return Action{Kind: PublishBundle, Reason: "the stored paths are not the accepted ones"}
	case s.CA.Previous == nil:
		return Action{Kind: Wait, At: s.waitUntil(o, c)}
	case !signed:
		return Action{Kind: Wait, Reason: "API servers have to trust the new CA before replicas use it", At: o.Clocks.Now().Add(recheckInterval)}
	}
	return s.nextRetirement(o)
}

// waitUntil returns when to check again. If the action is due by only one of two
// clocks, that is in a minute; if configurations are outdated, soon.
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

// nextRetirement ends trust in the previous CA once no replica can present a
// certificate that needs it.
func (s State) nextRetirement(o Observed) Action {
	a := Action{Kind: Wait, At: o.Clocks.Now().Add(recheckInterval)}
	switch {
	case !o.Published.Current:
		a.Reason = "not every webhook configuration contains the new CA"
	case !o.allServe(s.CA.Epoch):
		a.Reason = "not every replica serves a certificate of the new CA"
	case !o.Clocks.Agree():
		a.Reason = "the clocks of this replica and of the API server disagree"
	default:
		return Action{Kind: Retire, Reason: "every replica serves a certificate of the new CA"}
	}
	return a
}

// nextLeaf returns the next action for the leaf; false if there is none.
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
			return issue("the CA has changed, and the certificate expires before the overlap ends")
		}
	case !names.equal(leaf):
		return issue("the server names have changed")
	case o.Clocks.Agree() && !o.Clocks.Now().Before(s.leafDue(c)), !s.isValidLongEnough(o.Clocks, c):
		return issue("the certificate has reached its renewal age")
	}
	return Action{}, false
}

// replaceLeaf returns the action for an unusable stored leaf. While API servers
// may not trust the CA yet, replicas keep what they serve, unless that is unusable
// too.
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
		return Action{Kind: IssueLeaf, Reason: problem.Error() + "; no replica has a usable one"}, true
	}
	return Action{}, false
}

// isValidLongEnough reports whether the leaf is valid for a full renewal period by
// both clocks, or until its CA expires.
func (s State) isValidLongEnough(clocks Clocks, c Config) bool {
	leaf, root := s.Serving.Pair.Certificate(), s.CA.Pair.Certificate()
	until := earliest(clocks.late().Add(c.LeafLifetime-c.LeafRenewAfter), root.NotAfter)
	return !leaf.NotBefore.After(clocks.early()) && !leaf.NotAfter.Before(until.Truncate(time.Second))
}

// leafDue returns when the leaf has to be replaced. A leaf with a shorter lifetime
// than configured is replaced immediately.
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

// caDue returns when the CA has to be replaced. A CA with a shorter lifetime than
// configured is replaced after the same share of it.
func (s State) caDue(c Config) time.Time {
	ca := s.CA.Pair.Certificate()
	life := ca.NotAfter.Sub(c.start(ca))
	share := time.Duration(float64(life) * (float64(c.CARenewAfter) / float64(c.CALifetime)))
	return c.start(ca).Add(min(c.CARenewAfter, share))
}

// stillNeeded returns the root that has to stay trusted together with a new CA
// that has no cross-certificate: the root of the presented leaf, from any copy.
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
	// Replicas present an unknown certificate. While a new CA is being published it
	// is of the old CA; with a cross-certificate, the old CA verifies both.
	if o.anyServesBefore(max(s.Serving.TrustEpoch, o.Published.Epoch)) {
		return oldest(roots, s.CA, o.Memory.CA)
	}
	return newest(roots, s.CA, o.Memory.CA)
}

// oldest returns the first of the roots. Known successions take precedence over
// dates, because clocks may have been wrong.
func oldest(roots []*x509.Certificate, known ...Authority) *x509.Certificate {
	followers := func(root *x509.Certificate) bool {
		return slices.ContainsFunc(known, func(a Authority) bool {
			return a.Previous != nil && slices.ContainsFunc(roots, a.Previous.Equal) && sameCertificate(a.Pair.Certificate(), root)
		})
	}
	return slices.MinFunc(excluding(roots, followers), byDate)
}

// newest returns the last of the roots.
func newest(roots []*x509.Certificate, known ...Authority) *x509.Certificate {
	followed := func(root *x509.Certificate) bool {
		return slices.ContainsFunc(known, func(a Authority) bool {
			return sameCertificate(a.Previous, root) && !a.Pair.IsZero() && slices.ContainsFunc(roots, a.Pair.Certificate().Equal)
		})
	}
	return slices.MaxFunc(excluding(roots, followed), byDate)
}

func byDate(a, b *x509.Certificate) int { return a.NotBefore.Compare(b.NotBefore) }

// excluding returns the roots that do not match, or all of them if all match.
func excluding(roots []*x509.Certificate, so func(*x509.Certificate) bool) []*x509.Certificate {
	if left := slices.DeleteFunc(slices.Clone(roots), so); len(left) > 0 {
		return left
	}
	return roots
}
