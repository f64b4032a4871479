package registration

import (
	"slices"
	"unique"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/registration/matchconditions"
	"github.com/ostiary/ostiary/internal/rollout"
)

// Entry is the part of a plan that depends on one policy alone. It is immutable and
// shares no memory with the policy.
type Entry struct {
	name string
	// memberships has one element for each phase of the policy, the mutating one
	// first, and then those for pod templates.
	memberships []membership
}

// Name returns the name of the policy.
func (e Entry) Name() string { return e.name }

// groupHandle refers to a group. Groups are equal if their handles are.
type groupHandle = unique.Handle[groupID]

// membership is the registration of a policy in one phase.
type membership struct {
	policy    string
	uid       types.UID
	phase     Phase
	templates bool
	condition string // the delegated one
	group     groupHandle
	separable bool // see isSeparable
	units     []ruleUnit
	// ordered are the rules in their original order if it matters, otherwise nil.
	ordered []admissionregistrationv1.RuleWithOperations
	hash    bucketHash
	size    int // bytes of rules and name in a configuration, approximately
	// external is nil for policies without a backend.
	external *externalWebhook
	// undelegated is the membership without a condition, nil if there is none.
	undelegated *membership
}

// Prepare does the part of Build that depends on one policy alone.
func Prepare(policy *v1alpha1.WebhookPolicy) Entry {
	policy = rollout.InEffect(policy)
	spec := &policy.Spec
	if spec.Backend != nil {
		return Entry{name: policy.Name, memberships: []membership{newExternalMembership(policy)}}
	}
	e := Entry{name: policy.Name}
	for _, phase := range phasesOf(spec) {
		condition := ""
		// API servers evaluate conditions before they convert events.
		if phase == PhaseValidate && !slices.Contains(guard.AllowedCritical(spec), guard.CoreEvents) {
			condition = matchconditions.Condition(spec)
		}
		rules := plainRules(matchOf(spec).ResourceRules, phase)
		s := settingsOf(spec, phase, rules)
		s.separable = isSeparable(&s, rules)
		e.memberships = append(e.memberships, newMembership(policy, rules, s, condition))
	}
	e.memberships = append(e.memberships, templateMemberships(policy)...)
	return e
}

// phasesOf returns the phases in which Ostiary is called for a policy.
func phasesOf(spec *v1alpha1.WebhookPolicySpec) []Phase {
	var phases []Phase
	if spec.Mutates() {
		phases = append(phases, PhaseMutate)
	}
	if spec.Validates() {
		phases = append(phases, PhaseValidate)
	}
	return phases
}

// newMembership returns the registration of a policy with some rules and settings. A
// condition that is not empty is delegated to the API server.
//
// The matchConditions of mutations are not delegated: API servers do not reinvoke a webhook
// that they did not call the first time, and a separate group changes the order of
// mutations. The condition of templateMemberships is delegated for mutations too: an outage
// of Ostiary must not deny the updates that it excludes.
func newMembership(
	policy *v1alpha1.WebhookPolicy,
	rules []admissionregistrationv1.RuleWithOperations,
	s settings,
	condition string,
) membership {
	m := membership{
		policy:    policy.Name,
		uid:       policy.UID,
		phase:     s.Phase,
		templates: s.Templates,
		group:     unique.Make(s.group()),
		separable: s.separable,
		units:     unitsOf(rules),
		hash:      newBucketHash(resourceSignature(rules), policy.Name),
	}
	if s.ordered {
		m.ordered = rules
	}
	m.size = len(m.policy) + sizeOf(m.units)
	if condition == "" {
		return m
	}
	delegating := m
	delegating.undelegated = &m
	delegating.condition = condition
	s.Condition = condition
	delegating.group = unique.Make(s.group())
	return delegating
}
