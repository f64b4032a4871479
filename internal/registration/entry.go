package registration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration/matchconditions"
)

// Entry is what a plan needs to know of one policy. It shares nothing with the
// policy it was prepared from, and nothing changes it.
type Entry struct {
	name string
	// memberships are one for each phase that the policy is called in, the
	// mutating one first.
	memberships []membership
}

// Name is the name of the policy.
func (e Entry) Name() string { return e.name }

// membership is a policy's part in one phase.
type membership struct {
	policy   string
	uid      types.UID
	settings settings
	// key is the canonical form of settings; groupName is derived from it.
	key       string
	groupName string
	units     []ruleUnit
	// ordered holds the rules as the author ordered them, where order matters.
	ordered []admissionregistrationv1.RuleWithOperations
	hash    bucketHash
	size    int
	// external is set where Ostiary is not the one that is called.
	external *externalWebhook
	// undelegated is the same without a condition, nil where there is none.
	undelegated *membership
}

// settings are what all members of a call group have in common. Backend is the
// name of a policy that has one. Order and ReinvocationPolicy are only for the
// mutating phase, Condition, which the API server evaluates, only for the
// validating one. Critical are the guarded resources that are let through.
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
}

// Prepare does the part of Build that concerns one policy alone.
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
		if !slices.Contains(m.settings.Critical, coreEvents) { // API servers do not show conditions the converted one
			m.delegate(matchconditions.Condition(&policy.Spec))
		}
		e.memberships = append(e.memberships, m)
	}
	return e
}

func newMembership(policy *v1alpha1.WebhookPolicy, phase Phase, rules []admissionregistrationv1.RuleWithOperations) membership {
	spec := &policy.Spec
	match := matchOf(spec)
	through := allowedCritical(spec)
	versions, ordered := versionSignature(rules, through)
	m := membership{
		policy: policy.Name,
		uid:    policy.UID,
		settings: settings{
			Phase:          phase,
			MatchPolicy:    matchPolicy(match),
			FailurePolicy:  spec.WebhookFailurePolicy(),
			TimeoutSeconds: spec.EffectiveTimeoutSeconds(),
			SideEffects:    spec.SideEffects(),
			Versions:       versions,
			Critical:       through,
		},
		units: unitsOf(rules),
		hash:  newBucketHash(resourceSignature(rules), policy.Name),
	}
	m.settings.NamespaceSelector, m.settings.ObjectSelector = selectors(spec, match, rules, phase)
	if phase == PhaseMutate {
		m.settings.FailurePolicy = spec.EffectiveFailurePolicy()
		m.settings.Order = new(spec.EffectiveOrder())
		m.settings.ReinvocationPolicy = spec.EffectiveReinvocationPolicy()
	}
	if ordered {
		m.ordered = rules
	}
	m.size = len(m.policy) + sizeOf(m.units)
	m.setKey()
	return m
}

func (m *membership) setKey() {
	m.key = canonicalJSON(m.settings)
	m.groupName = groupName(m.settings, m.key)
}

// groupName is readable where it can be and otherwise a hash of everything
// that members share. Nothing else goes into it, so a group keeps its name
// whatever happens to its members, the endpoint, the bundle or the exemptions.
// The hash is long enough that nobody finds settings that take another group's
// name. The order, in four digits, comes first: API servers call mutating
// webhooks in the order of their configurations' names.
func groupName(s settings, key string) string {
	sum := sha256.Sum256([]byte(key))
	name := fmt.Sprintf("%s-%ds-%s", strings.ToLower(string(s.FailurePolicy)), s.TimeoutSeconds, hex.EncodeToString(sum[:8]))
	if s.Order != nil {
		name = fmt.Sprintf("%04d-%s", *s.Order, name)
	}
	return name
}

func matchPolicy(match *admissionregistrationv1.MatchResources) admissionregistrationv1.MatchPolicyType {
	if match.MatchPolicy == nil {
		return admissionregistrationv1.Equivalent
	}
	return *match.MatchPolicy
}

// sortedSet is a sorted copy without duplicates, nil where it is empty.
func sortedSet[S ~string](items []S) []S {
	if len(items) == 0 {
		return nil
	}
	out := slices.Clone(items)
	slices.Sort(out)
	return slices.Compact(out)
}

// canonicalJSON writes values that hold only strings, numbers, slices and
// maps, for which encoding cannot fail.
func canonicalJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return string(out)
}
