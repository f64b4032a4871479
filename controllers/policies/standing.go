package policies

import (
	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

// Choice says which generation of a policy is registered and decides requests.
type Choice int

const (
	// ChooseNone means that the policy is not registered.
	ChooseNone Choice = iota
	// ChooseLatest means that the latest generation is registered.
	ChooseLatest
	// ChoosePrevious means that the previous generation stays registered, because the
	// latest one cannot be registered yet.
	ChoosePrevious
	// ChoosePlaceholder is like ChoosePrevious in a process that does not know the previous
	// generation. It must not disable the policy, so failurePolicy decides its requests.
	ChoosePlaceholder
)

// Standing is the state of a policy. Decide alone makes one, so that its table of transitions
// is complete.
type Standing struct {
	// Choice is the registered generation.
	Choice Choice
	// Refusal is the API server's reason to reject the registration of the latest generation,
	// or empty.
	Refusal string
	// Skew is the reason why the latest generation waits for an upgrade, or empty: a replica
	// does not know a field of it, and would decide requests as if that were not set.
	Skew string
	// DelegationError is the API server's reason to reject the conditions of the chosen
	// generation. Ostiary alone then evaluates them.
	DelegationError string

	// previous is the generation that was registered before the latest one, or the placeholder
	// for it. It is kept until the latest one is registered.
	previous *Generation
}

// Planned reports whether a generation of the policy is or will be registered.
func (s Standing) Planned() bool { return s.Choice != ChooseNone }

// IsPlaceholder reports whether failurePolicy decides the requests of a policy until its
// latest generation can be registered.
func (s Standing) IsPlaceholder() bool { return s.Choice == ChoosePlaceholder }

// chosen returns the generation that is registered, or the latest one if none is. It is nil for
// a placeholder that has not been made yet.
func (s Standing) chosen(latest *Generation) *Generation {
	if s.Choice == ChoosePrevious || s.Choice == ChoosePlaceholder {
		return s.previous
	}
	return latest
}

// confirmed returns the state after the API server has registered what was chosen. The
// latest generation then needs no previous one to go back to.
func (s Standing) confirmed() Standing {
	if s.Choice == ChooseLatest {
		s.previous = nil
	}
	return s
}

// Entry is a loaded policy: its latest generation, and the state of the policy. It is immutable.
type Entry struct {
	*Generation
	Standing
}

// effective returns the generation that decides requests.
func (e *Entry) effective() *Generation { return e.chosen(e.Generation) }

// Effective returns the policy that decides requests, with its compiled form: of an earlier
// generation, if this one cannot be registered.
func (e *Entry) Effective() (*v1alpha1.WebhookPolicy, *policy.Compiled) {
	effective := e.effective()
	return effective.Policy, effective.Compiled
}

// EffectiveGeneration returns the generation that is, or will be, registered; 0 if none
// is.
func (e *Entry) EffectiveGeneration() int64 {
	if !e.Planned() {
		return 0
	}
	return e.effective().Policy.Generation
}

// Facts are what the state of a policy depends on, apart from its generations.
type Facts struct {
	// Named means that a webhook configuration in the API server names the policy. A
	// generation of it may be enforced then, also if this process has never seen that one.
	Named bool
	// Registered means that the configurations contain the generation that was chosen before.
	Registered bool
	// Skew says which replica does not know a field of the latest generation; "" if all do.
	Skew string
	// Refusals has the API server's reasons to reject registrations, by generation.
	Refusals map[int64]string
	// RefusedConditions has the API server's reasons to reject delegated conditions.
	RefusedConditions map[string]string
}

// Decide returns the state of a policy. before is nil if the policy was not loaded before.
//
// An invalid generation of a registered policy is registered too, and failurePolicy decides
// its requests: a mistake must not disable a policy. If the API server rejects a generation, the
// CA bundle of its backend is not known yet, or a replica does not know its fields, the previous
// one stays. A policy that was never registered is not registered before its latest generation
// can be.
//
// A process that has started since does not have the previous generation. If it understands the
// latest one, it uses that for requests, and the leader writes no configuration for it yet.
// Otherwise failurePolicy decides.
func Decide(before *Entry, latest *Generation, f Facts) Standing {
	s := Standing{previous: keptGeneration(before, latest, f)}
	unusable := latest.awaitsBundle() || !latest.isUnderstood()
	needsPlaceholder := s.previous == nil && unusable && latest.registrable && f.Named
	s.Skew = f.Skew
	s.Refusal = f.Refusals[latest.Policy.Generation]
	if s.Refusal == "" && (s.previous != nil || needsPlaceholder) {
		// The leader has got the rejection. A process with no other generation to use sends
		// the registration again, if it becomes the leader.
		s.Refusal = refusedInStatus(latest.Policy)
	}
	switch {
	case needsPlaceholder:
		s.Choice = ChoosePlaceholder
	case s.Refusal != "" || unusable || s.mustWait(f.Named):
		s.Choice = s.previous.choice()
	case latest.canRegister(f.Named):
		s.Choice = ChooseLatest
	}
	if chosen := s.chosen(latest); chosen != nil {
		s.DelegationError = f.RefusedConditions[chosen.prepared.Condition()]
	}
	return s
}

// mustWait reports whether a policy waits for replicas that do not know all of its fields.
func (s *Standing) mustWait(isNamed bool) bool {
	return s.Skew != "" && (s.previous != nil || !isNamed)
}

// canRegister reports whether a generation may be registered: it is valid, or the
// configurations name its policy, so that failurePolicy decides its requests.
func (g *Generation) canRegister(isNamed bool) bool {
	return g.registrable && (g.Accepted() || isNamed)
}

// choice is that of a generation which stays while the latest one cannot be registered.
func (g *Generation) choice() Choice {
	switch {
	case g == nil:
		return ChooseNone
	case g.placeholder:
		return ChoosePlaceholder
	default:
		return ChoosePrevious
	}
}

// keptGeneration returns the generation that stays while the latest one cannot be registered,
// nil if there is none.
func keptGeneration(before *Entry, latest *Generation, f Facts) *Generation {
	if before == nil {
		return nil
	}
	kept := before.previous
	isNew := before.Compiled != latest.Compiled
	// It was read without the fields that this version does not know.
	wasMisread := !latest.isUnderstood() && before.effective().Policy.Generation == latest.Policy.Generation
	if isNew && f.Registered && before.effective().Accepted() && !wasMisread {
		kept = before.effective()
	}
	isEarlierStep := kept != nil && kept.Policy.Generation == latest.Policy.Generation // the rejection is of the later one
	if kept != nil && !isEarlierStep && f.Refusals[kept.Policy.Generation] != "" {
		return nil
	}
	return kept
}
