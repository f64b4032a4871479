package registration

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// selectors are those that a policy is registered with: its own, and where it
// has one binding only, those of the binding too, as far as no request that
// matches both is lost. Ostiary evaluates bindings itself, so what is left out
// here costs calls and nothing else.
//
// A namespace has one set of labels, so two namespaceSelectors come to the same
// as one with the requirements of both. An exception are requests for Namespace
// objects in the mutating phase: mutations may change the labels that the
// binding is evaluated with.
//
// An objectSelector is evaluated on the object and on the old one, and one of
// them has to match. Two selectors may each find another of them, which one
// selector with the requirements of both cannot. So the binding's is taken only
// where the policy has none, and never in the mutating phase, where the
// object's labels may change.
//
// With a paramKind nothing is taken from the binding: a paramKind that cannot
// be resolved is an error for every request that the policy matches, whatever
// its bindings match.
func selectors(spec *v1alpha1.WebhookPolicySpec, match *admissionregistrationv1.MatchResources,
	rules []admissionregistrationv1.RuleWithOperations, phase Phase) (namespaces, objects metav1.LabelSelector) {
	namespaces, objects = canonicalSelector(match.NamespaceSelector), canonicalSelector(match.ObjectSelector)
	if len(spec.Bindings) != 1 || spec.Bindings[0].MatchResources == nil || spec.ParamKind != nil {
		return namespaces, objects
	}
	binding := spec.Bindings[0].MatchResources
	if phase == PhaseValidate || !slices.ContainsFunc(rules, reachesNamespaces) {
		namespaces = intersectSelectors(namespaces, canonicalSelector(binding.NamespaceSelector))
	}
	if phase == PhaseValidate && len(objects.MatchLabels) == 0 && len(objects.MatchExpressions) == 0 {
		objects = canonicalSelector(binding.ObjectSelector)
	}
	return namespaces, objects
}

// reachesNamespaces looks at the resource's name alone, as the API server does
// when it decides whose labels to look at.
func reachesNamespaces(rule admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rule.Resources, func(entry string) bool {
		resource, _, _ := strings.Cut(entry, "/")
		return resource == wildcard || resource == "namespaces"
	})
}

// intersectSelectors demands what two canonical selectors demand.
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
