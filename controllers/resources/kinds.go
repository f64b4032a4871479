package resources

import (
	"cmp"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KindsIn are the kinds of those of the given resources that a rule is for, in a stable
// order, and no more of them than limit.
func KindsIn(lists map[schema.GroupVersion][]metav1.APIResource, rule admissionregistrationv1.Rule, limit int) []Kind {
	return kindsIn(lists, sorted(lists), rule, limit)
}

// sorted are group versions in the order of their names.
func sorted(lists map[schema.GroupVersion][]metav1.APIResource) []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(lists), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	})
}

func kindsIn(lists map[schema.GroupVersion][]metav1.APIResource, order []schema.GroupVersion, rule admissionregistrationv1.Rule, limit int) []Kind {
	var out []Kind
	for _, gv := range order {
		if !anyOf(rule.APIGroups, gv.Group) || !anyOf(rule.APIVersions, gv.Version) {
			continue
		}
		for _, resource := range lists[gv] {
			if len(out) == limit {
				return out
			}
			kind := Kind{GroupVersionKind: kindOf(gv, resource), Served: gv}
			if names(rule.Resources, resource.Name) && !slices.Contains(out, kind) {
				out = append(out, kind)
			}
		}
	}
	return out
}
