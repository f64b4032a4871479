package registration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unique"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/registration/matchconditions"
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

// membership is the registration of a policy in one phase.
type membership struct {
	policy    string
	uid       types.UID
	phase     Phase
	templates bool
	condition string // the delegated one
	group     unique.Handle[groupID]
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

// settings are equal for all members of a call group. Backend is the name of a
// policy with a backend. Order and ReinvocationPolicy are only for the mutating
// phase, Condition, the delegated condition, only for the validating phase.
// Critical are the allowed critical resources. With Templates, the group is called for
// workloads whose pod templates are evaluated.
type settings struct {
	Phase              Phase
	MatchPolicy        admissionregistrationv1.MatchPolicyType
	NamespaceSelector  metav1.LabelSelector
	ObjectSelector     metav1.LabelSelector
	FailurePolicy      admissionregistrationv1.FailurePolicyType
	TimeoutSeconds     int32
	SideEffects        admissionregistrationv1.SideEffectClass
	Versions           string
	Backend            string                                         `json:",omitempty"`
	Order              *int32                                         `json:",omitempty"`
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType `json:",omitempty"`
	Condition          string                                         `json:",omitempty"`
	Critical           []string                                       `json:",omitempty"`
	Templates          bool                                           `json:",omitempty"`
}

// Prepare does the part of Build that depends on one policy alone.
func Prepare(policy *v1alpha1.WebhookPolicy) Entry {
	e := Entry{name: policy.Name}
	if policy.Spec.Backend != nil {
		e.memberships = append(e.memberships, newExternalMembership(policy))
		return e
	}
	match := matchOf(&policy.Spec)
	if policy.Spec.Mutates() {
		e.memberships = append(e.memberships, newMembership(policy, PhaseMutate, plainRules(match.ResourceRules, PhaseMutate)))
	}
	if policy.Spec.Validates() {
		m := newMembership(policy, PhaseValidate, plainRules(match.ResourceRules, PhaseValidate))
		if !slices.Contains(guard.AllowedCritical(&policy.Spec), guard.CoreEvents) { // API servers evaluate conditions before they convert events
			m.delegate(matchconditions.Condition(&policy.Spec))
		}
		e.memberships = append(e.memberships, m)
	}
	e.memberships = append(e.memberships, templateMemberships(policy)...)
	return e
}

func newMembership(policy *v1alpha1.WebhookPolicy, phase Phase, rules []admissionregistrationv1.RuleWithOperations) membership {
	spec := &policy.Spec
	match := matchOf(spec)
	allowed := guard.AllowedCritical(spec)
	versions, ordered := versionSignature(rules, allowed)
	set := settings{
		Phase:          phase,
		MatchPolicy:    matchPolicy(match),
		FailurePolicy:  spec.WebhookFailurePolicy(),
		TimeoutSeconds: spec.EffectiveTimeoutSeconds(),
		SideEffects:    spec.SideEffects(),
		Versions:       versions,
		Critical:       allowed,
	}
	set.NamespaceSelector, set.ObjectSelector = selectors(spec, match, rules, phase)
	if phase == PhaseMutate {
		set.FailurePolicy = spec.EffectiveFailurePolicy()
		set.Order = new(spec.EffectiveOrder())
		set.ReinvocationPolicy = spec.EffectiveReinvocationPolicy()
	}
	m := membership{policy: policy.Name, uid: policy.UID, units: unitsOf(rules), hash: newBucketHash(resourceSignature(rules), policy.Name)}
	if ordered {
		m.ordered = rules
	}
	m.size = len(m.policy) + sizeOf(m.units)
	m.set(set)
	return m
}

// groupID is equal for policies with equal settings, which share the memory of it. The
// settings themselves take more.
type groupID struct {
	key  string // the canonical form of the settings
	name string // derived from the key
}

func (m *membership) key() string { return m.group.Value().key }

func (m *membership) groupName() string { return m.group.Value().name }

// settings decodes the key.
func (m *membership) settings() settings {
	var s settings
	if err := json.Unmarshal([]byte(m.key()), &s); err != nil {
		panic(fmt.Sprintf("decoding settings: %v", err))
	}
	return s
}

func (m *membership) set(s settings) {
	key := canonicalJSON(s)
	m.phase, m.templates, m.condition = s.Phase, s.Templates, s.Condition
	m.group = unique.Make(groupID{key: key, name: groupName(s, key)})
}

func (m *membership) change(f func(*settings)) {
	s := m.settings()
	f(&s)
	m.set(s)
}

// groupName returns the name of the group with these settings. It contains some
// settings and a hash of all of them, and depends on nothing else: members,
// endpoint, bundle and exempt namespaces do not change it. It is impractical to find
// settings with the 64-bit hash of another group. The order comes first, in four
// digits: API servers call mutating webhooks in the order of their configurations'
// names.
func groupName(s settings, key string) string {
	sum := sha256.Sum256([]byte(key))
	hash := hex.EncodeToString(sum[:8])
	if s.Templates {
		hash = templatesMark + hash[1:]
	}
	return s.groupPrefix() + hash
}

func (s *settings) groupPrefix() string {
	prefix := fmt.Sprintf("%s-%ds-", strings.ToLower(string(s.FailurePolicy)), s.TimeoutSeconds)
	if s.Order != nil {
		prefix = fmt.Sprintf("%04d-%s", *s.Order, prefix)
	}
	return prefix
}

// shownDigits is the number of digits of a group's hash in the name of its webhook.
const shownDigits = 8

// webhookName returns the name of the webhook of a group. It is short, because users
// read it in each denial: policies-1d790057.ostiary.dev. The names of two webhooks can
// be equal: they are in different configurations.
func (m *membership) webhookName(group string) string {
	if m.external != nil {
		return group + webhookDomain
	}
	s := m.settings()
	hash := strings.TrimPrefix(group, s.groupPrefix()) // and the part of a divided group
	kind := "policies-"
	switch {
	case m.templates:
		kind = "templates-"
	case m.phase == PhaseMutate:
		kind = "mutations-"
	}
	return kind + hash[:shownDigits] + hash[2*shownDigits:] + webhookDomain
}

func matchPolicy(match *admissionregistrationv1.MatchResources) admissionregistrationv1.MatchPolicyType {
	if match.MatchPolicy == nil {
		return admissionregistrationv1.Equivalent
	}
	return *match.MatchPolicy
}

// sortedSet returns a sorted copy without duplicates, nil if it is empty.
func sortedSet[S ~string](items []S) []S {
	if len(items) == 0 {
		return nil
	}
	out := slices.Clone(items)
	slices.Sort(out)
	return slices.Compact(out)
}

// canonicalJSON encodes values of strings, numbers, slices and maps, for which
// encoding cannot fail.
func canonicalJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return string(out)
}
