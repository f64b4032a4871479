package registration

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isTolerated reports whether a requirement that another client has added to a
// namespaceSelector is not reverted, because it excludes namespaces of the control
// plane. AKS adds such requirements to every webhook, and again after each removal.
// Other requirements could disable policies.
func isTolerated(r metav1.LabelSelectorRequirement) bool {
	switch r.Key {
	case "control-plane":
		return r.Operator == metav1.LabelSelectorOpDoesNotExist || r.Operator == metav1.LabelSelectorOpNotIn
	case "kubernetes.azure.com/managedby":
		return r.Operator == metav1.LabelSelectorOpNotIn
	}
	return false
}

// sameNamespaces reports whether an observed namespaceSelector is the planned one,
// except for tolerated requirements.
func sameNamespaces(want, have *metav1.LabelSelector) bool {
	if want == nil || have == nil {
		return want == have
	}
	planned, observed := canonicalSelector(want), canonicalSelector(have)
	observed.MatchExpressions = slices.DeleteFunc(observed.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return isTolerated(r) && !slices.ContainsFunc(planned.MatchExpressions, func(p metav1.LabelSelectorRequirement) bool {
			return compareRequirements(p, r) == 0
		})
	})
	return equality.Semantic.DeepEqual(planned, observed)
}

// sameWebhooks reports whether the observed webhooks are the planned ones, except for
// tolerated requirements.
func sameWebhooks(want, have []webhook) bool {
	return slices.EqualFunc(want, have, func(w, h webhook) bool {
		if !sameNamespaces(w.NamespaceSelector, h.NamespaceSelector) {
			return false
		}
		h.NamespaceSelector = w.NamespaceSelector
		return equality.Semantic.DeepEqual(w, h)
	})
}
