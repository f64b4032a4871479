package configurations

import (
	"slices"
	"time"

	"github.com/ostiary/ostiary/internal/registration"
)

// pass is the state of one reconcile. A policy that moves between configurations
// is added to the new one before it is removed from the old one. If the addition
// is postponed, so is the removal.
type pass struct {
	observed     map[registration.Key]registration.Configuration
	postponed    map[member]struct{} // policies that are not yet in their planned configuration
	gate         *ReplicaSnapshot
	rejections   []rejection
	requeueAfter time.Duration // until postponed work is tried again; 0 waits for an event
}

// member is a policy in a phase.
type member struct {
	phase  registration.Phase
	policy string
}

// rejection is a configuration that the API server rejects, with its error.
type rejection struct {
	want registration.Configuration
	err  error
}

func newPass(observed []registration.Configuration) *pass {
	return &pass{observed: registration.ByKey(observed), postponed: map[member]struct{}{}}
}

// postpone records that a configuration is not written in this pass. Its members
// stay in their present configuration.
func (p *pass) postpone(want registration.Configuration) {
	for _, name := range registration.Members(want) {
		p.postponed[member{registration.PhaseOf(want), name}] = struct{}{}
	}
}

func (p *pass) reject(want registration.Configuration, err error) {
	p.postpone(want)
	p.rejections = append(p.rejections, rejection{want, err})
}

// requeueWithin repeats the reconcile after at most this time.
func (p *pass) requeueWithin(after time.Duration) {
	if p.requeueAfter == 0 || after < p.requeueAfter {
		p.requeueAfter = after
	}
}

// split separates configurations that keep all of their members from those that
// lose some. The latter may have to wait for the former.
func (p *pass) split(wants []registration.Configuration) (additive, removing []registration.Configuration) {
	for _, want := range wants {
		if len(p.removedMembers(want)) == 0 {
			additive = append(additive, want)
		} else {
			removing = append(removing, want)
		}
	}
	return additive, removing
}

// removedMembers returns the members that writing a configuration would remove.
func (p *pass) removedMembers(want registration.Configuration) []string {
	have := p.observed[registration.KeyOf(want)]
	if have == nil {
		return nil
	}
	wanted := registration.Members(want)
	return slices.DeleteFunc(registration.Members(have), func(name string) bool { return slices.Contains(wanted, name) })
}

// wouldDrop reports whether writing a configuration would remove a policy that
// is not yet in its planned configuration.
func (p *pass) wouldDrop(want registration.Configuration) bool {
	return slices.ContainsFunc(p.removedMembers(want), func(name string) bool {
		_, postponed := p.postponed[member{registration.PhaseOf(want), name}]
		return postponed
	})
}

// wouldDropAny is wouldDrop for the deletion of a configuration.
func (p *pass) wouldDropAny(ref registration.Ref) bool {
	have := p.observed[ref.Key]
	return have != nil && slices.ContainsFunc(registration.Members(have), func(name string) bool {
		_, postponed := p.postponed[member{ref.Phase, name}]
		return postponed
	})
}
