package configurations

import (
	"slices"
	"time"

	"github.com/ostiary/ostiary/internal/registration"
)

// pass is one execution of changes. Changes are ordered so that a policy which
// moves between configurations is added to one before it is taken out of the
// other; where the first cannot be done, the second is not done either.
type pass struct {
	observed map[key]registration.Configuration
	waiting  map[member]struct{} // policies that are not yet where they are planned
	gate     *opening
	refused  []refused
	next     time.Duration // when to try again what was left undone; 0 is when asked to
}

// member is a policy in a phase.
type member struct {
	phase  registration.Phase
	policy string
}

// refused is a configuration that the API server does not take.
type refused struct {
	want registration.Configuration
	err  error
}

func newPass(observed []registration.Configuration) *pass {
	p := &pass{observed: make(map[key]registration.Configuration, len(observed)), waiting: map[member]struct{}{}}
	for _, config := range observed {
		p.observed[keyOf(config)] = config
	}
	return p
}

// leave notes that a configuration is not written. Its members stay in force
// where they are.
func (p *pass) leave(want registration.Configuration) {
	for _, name := range registration.Members(want) {
		p.waiting[member{registration.PhaseOf(want), name}] = struct{}{}
	}
}

func (p *pass) refuse(want registration.Configuration, err error) {
	p.leave(want)
	p.refused = append(p.refused, refused{want, err})
}

// later has the pass repeated after some time at the latest.
func (p *pass) later(after time.Duration) {
	if p.next == 0 || after < p.next {
		p.next = after
	}
}

// split tells configurations that keep every policy that they have from those
// that one is taken out of, which may have to wait for others.
func (p *pass) split(wants []registration.Configuration) (keeping, taking []registration.Configuration) {
	for _, want := range wants {
		if len(p.lost(want)) == 0 {
			keeping = append(keeping, want)
		} else {
			taking = append(taking, want)
		}
	}
	return keeping, taking
}

// lost are the policies that writing a configuration takes out of it.
func (p *pass) lost(want registration.Configuration) []string {
	have := p.observed[keyOf(want)]
	if have == nil {
		return nil
	}
	stay := registration.Members(want)
	return slices.DeleteFunc(registration.Members(have), func(name string) bool { return slices.Contains(stay, name) })
}

// frees reports whether writing a configuration would take a policy out of it
// that is not yet where it belongs.
func (p *pass) frees(want registration.Configuration) bool {
	return slices.ContainsFunc(p.lost(want), func(name string) bool {
		_, waits := p.waiting[member{registration.PhaseOf(want), name}]
		return waits
	})
}

// freesAll is frees for a configuration that is to be deleted.
func (p *pass) freesAll(ref registration.Ref) bool {
	have := p.observed[key{ref.Phase, ref.Name}]
	return have != nil && slices.ContainsFunc(registration.Members(have), func(name string) bool {
		_, waits := p.waiting[member{ref.Phase, name}]
		return waits
	})
}
