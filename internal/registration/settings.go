package registration

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// settings are equal for all members of a call group. Backend is the name of a
// policy with a backend. Order and ReinvocationPolicy are only for the mutating
// phase, Condition, the delegated condition, only for the validating phase.
// Critical are the allowed critical resources. With Templates, the group is called for
// workloads whose pod templates are evaluated. The group is not called for requests in the
// version Except.
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
	Except             string                                         `json:",omitempty"`

	ordered   bool // the order of the rules matters, which Versions then contains
	separable bool // see isSeparable
}

// settingsOf returns the settings of a policy in a phase, with some of its rules.
func settingsOf(
	spec *v1alpha1.WebhookPolicySpec,
	phase Phase,
	rules []admissionregistrationv1.RuleWithOperations,
) settings {
	match := matchOf(spec)
	s := settings{
		Phase:          phase,
		MatchPolicy:    matchPolicy(match),
		FailurePolicy:  spec.WebhookFailurePolicy(),
		TimeoutSeconds: spec.EffectiveTimeoutSeconds(),
		SideEffects:    spec.SideEffects(),
		Critical:       guard.AllowedCritical(spec),
	}
	s.NamespaceSelector, s.ObjectSelector = selectors(spec, match, rules, phase)
	s.Versions, s.ordered = versionSignature(rules, s.Critical)
	if phase == PhaseMutate {
		s.FailurePolicy = spec.MutationFailurePolicy()
		s.Order = new(spec.EffectiveOrder())
		s.ReinvocationPolicy = spec.EffectiveReinvocationPolicy()
	}
	return s
}

func matchOf(spec *v1alpha1.WebhookPolicySpec) *admissionregistrationv1.MatchResources {
	return cmp.Or(spec.MatchConstraints, &admissionregistrationv1.MatchResources{})
}

func matchPolicy(match *admissionregistrationv1.MatchResources) admissionregistrationv1.MatchPolicyType {
	if match.MatchPolicy == nil {
		return admissionregistrationv1.Equivalent
	}
	return *match.MatchPolicy
}

// groupID is equal for policies with equal settings, which share the memory of it. The
// settings themselves take more.
type groupID struct {
	key  string // the canonical form of the settings
	name string // derived from the key
}

// group returns the group with the settings.
func (s *settings) group() groupID {
	key := canonicalJSON(s)
	return groupID{key: key, name: s.groupName(key)}
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

// groupName returns the name of the group with these settings. It contains some
// settings and a hash of all of them, and depends on nothing else: members,
// endpoint, bundle and exempt namespaces do not change it. It is impractical to find
// settings with the 64-bit hash of another group. The order comes first, in four
// digits: API servers call mutating webhooks in the order of their configurations'
// names.
func (s *settings) groupName(key string) string {
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
