package registration

import (
	"cmp"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// selectors returns the selectors of a policy's webhook: those of the policy and, if
// it has exactly one binding, those of the binding, as far as the result matches
// every request that both match. Ostiary evaluates bindings again, so a selector that
// is not used here only costs calls.
//
// A namespace has one set of labels, so one namespaceSelector with the requirements
// of two matches the same requests as both. Requests for Namespace objects in the
// mutating phase are an exception: mutations can change the labels on which the
// binding is evaluated.
//
// An objectSelector matches if the object or the old object matches. Two selectors
// can match different ones of them, but one selector with the requirements of both
// cannot. The binding's objectSelector is therefore used only if the policy has
// none, and never in the mutating phase, in which the object's labels can change.
//
// With a paramKind the selectors of the binding are not used: a paramKind that cannot
// be resolved is an error for every request that the policy matches, also if no
// binding matches.
func selectors(spec *v1alpha1.WebhookPolicySpec, match *admissionregistrationv1.MatchResources,
	rules []admissionregistrationv1.RuleWithOperations, phase Phase) (namespaces, objects metav1.LabelSelector) {
	namespaces, objects = canonicalSelector(match.NamespaceSelector), canonicalSelector(match.ObjectSelector)
	if len(spec.Bindings) != 1 || spec.Bindings[0].MatchResources == nil || spec.ParamKind != nil {
		return namespaces, objects
	}
	binding := spec.Bindings[0].MatchResources
	if phase == PhaseValidate || !slices.ContainsFunc(rules, guard.ReachesNamespaces) {
		namespaces = intersectSelectors(namespaces, canonicalSelector(binding.NamespaceSelector))
	}
	if phase == PhaseValidate && len(objects.MatchLabels) == 0 && len(objects.MatchExpressions) == 0 {
		objects = canonicalSelector(binding.ObjectSelector)
	}
	return namespaces, objects
}

// intersectSelectors returns a selector with the requirements of two canonical
// selectors.
func intersectSelectors(a, b metav1.LabelSelector) metav1.LabelSelector {
	out := metav1.LabelSelector{
		MatchLabels:      map[string]string{},
		MatchExpressions: slices.Concat(a.MatchExpressions, b.MatchExpressions),
	}
	maps.Copy(out.MatchLabels, a.MatchLabels)
	for key, value := range b.MatchLabels {
		if other, ok := out.MatchLabels[key]; ok && other != value {
			out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value},
			})
			continue
		}
		out.MatchLabels[key] = value
	}
	return canonicalSelector(&out)
}

// canonicalSelector returns a sorted copy without duplicates.
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
