package registration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/guard"
)

// guards exclude guarded resources and exempt namespaces from a webhook. The
// necessary conditions depend on its rules, which change with the members.
type guards struct {
	critical []string // allowed critical resources
	exempt   []string // exempt namespaces
	// selector is the namespaceSelector of the members.
	selector metav1.LabelSelector
}

// conditions returns the guard for a webhook with these rules: one matchCondition,
// or none if the rules need none.
func (g *guards) conditions(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.MatchCondition {
	return guard.Conditions(rules, g.critical, g.exempt)
}

// namespaceSelector returns the members' selector without the exempt namespaces,
// unless conditions excludes these.
func (g *guards) namespaceSelector(rules []admissionregistrationv1.RuleWithOperations) *metav1.LabelSelector {
	out := g.selector.DeepCopy()
	if !slices.ContainsFunc(rules, guard.LabelsUntrusted) {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: slices.Clone(g.exempt),
		})
	}
	return out
}

// ownConditions returns the matchConditions of a webhook without the guard.
func ownConditions(w *webhook) []admissionregistrationv1.MatchCondition {
	return slices.DeleteFunc(slices.Clone(w.MatchConditions), func(c admissionregistrationv1.MatchCondition) bool {
		return c.Name == guard.ResourcesCondition || c.Name == guard.NamespacesCondition
	})
}
