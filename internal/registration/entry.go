package registration

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Entry is what a plan needs to know of one policy. It shares nothing with the
// policy it was prepared from, and nothing changes it.
type Entry struct {
	name     string
	uid      types.UID
	settings settings
	// key is the canonical form of settings; groupName is derived from it.
	key       string
	groupName string
	atoms     []atom
	// ordered holds the rules as the author ordered them, where order matters.
	ordered []admissionregistrationv1.RuleWithOperations
	address address
	size    int
}

// Name is the name of the policy.
func (e Entry) Name() string { return e.name }

// settings are what all members of a call group have in common.
type settings struct {
	Phase             string
	MatchPolicy       admissionregistrationv1.MatchPolicyType
	NamespaceSelector metav1.LabelSelector
	ObjectSelector    metav1.LabelSelector
	FailurePolicy     admissionregistrationv1.FailurePolicyType
	TimeoutSeconds    int32
	SideEffects       admissionregistrationv1.SideEffectClass
	Versions          string
}

// Prepare does the part of Build that concerns one policy alone.
func Prepare(policy *v1alpha1.WebhookPolicy) Entry {
	match := policy.Spec.MatchConstraints
	if match == nil {
		match = &admissionregistrationv1.MatchResources{}
	}
	rules := plainRules(match.ResourceRules)
	versions, ordered := versionSignature(rules)
	e := Entry{
		name: policy.Name,
		uid:  policy.UID,
		settings: settings{
			Phase:             PhaseValidate,
			MatchPolicy:       matchPolicy(match),
			NamespaceSelector: canonicalSelector(match.NamespaceSelector),
			ObjectSelector:    canonicalSelector(match.ObjectSelector),
			FailurePolicy:     policy.Spec.WebhookFailurePolicy(),
			TimeoutSeconds:    policy.Spec.EffectiveTimeoutSeconds(),
			SideEffects:       admissionregistrationv1.SideEffectClassNone,
			Versions:          versions,
		},
		atoms:   atomsOf(rules),
		address: newAddress(resourceSignature(rules), policy.Name),
	}
	if ordered {
		e.ordered = rules
	}
	e.key = canonicalJSON(e.settings)
	e.groupName = groupName(e.settings, e.key)
	e.size = len(e.name) + sizeOf(e.atoms)
	return e
}

// groupName is readable where it can be and otherwise a hash of everything
// that members share. Nothing else goes into it, so a group keeps its name
// whatever happens to its members, the endpoint, the bundle or the exemptions.
// The hash is long enough that nobody finds settings that take another group's
// name.
func groupName(s settings, key string) string {
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%s-%ds-%s", strings.ToLower(string(s.FailurePolicy)), s.TimeoutSeconds, hex.EncodeToString(sum[:8]))
}

func matchPolicy(match *admissionregistrationv1.MatchResources) admissionregistrationv1.MatchPolicyType {
	if match.MatchPolicy == nil {
		return admissionregistrationv1.Equivalent
	}
	return *match.MatchPolicy
}

// canonicalSelector sorts what has no order and drops what is said twice.
func canonicalSelector(selector *metav1.LabelSelector) metav1.LabelSelector {
	var out metav1.LabelSelector
	if selector == nil {
		return out
	}
	if len(selector.MatchLabels) > 0 {
		out.MatchLabels = maps.Clone(selector.MatchLabels)
	}
	for _, r := range selector.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: r.Key, Operator: r.Operator, Values: sortedSet(r.Values),
		})
	}
	slices.SortFunc(out.MatchExpressions, compareRequirements)
	out.MatchExpressions = slices.CompactFunc(out.MatchExpressions, func(a, b metav1.LabelSelectorRequirement) bool {
		return compareRequirements(a, b) == 0
	})
	return out
}

func compareRequirements(a, b metav1.LabelSelectorRequirement) int {
	return cmp.Or(
		cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Operator, b.Operator),
		slices.Compare(a.Values, b.Values),
	)
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
