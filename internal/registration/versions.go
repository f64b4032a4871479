package registration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// versionSignature is equal for policies whose rules may share a webhook
// without changing which version of an object any of them is shown.
//
// With matchPolicy Equivalent the API server first looks for a rule that
// matches a request as it came; failing that it takes the rules in their
// order, and for each the versions that the resource also exists in, and
// converts the object to the first that matches. So:
//
//   - Where all rules have the same versions, these are the signature. Whether
//     a request needs conversion, and to which version, then depends on them
//     alone.
//   - Where they differ, but no two rules with different versions can meet at
//     one resource, the signature says which versions each resource has. The
//     first case then holds for every resource by itself.
//   - Otherwise the order and every detail of the rules matter. The rules are
//     the signature, and the group keeps them as they are (ordered is true). So
//     it is with events that are let through: they exist in two API groups, and
//     in which of them they are shown depends on all rules too.
func versionSignature(rules []admissionregistrationv1.RuleWithOperations, through []string) (signature string, ordered bool) {
	if len(rules) == 0 {
		return "", false
	}
	mixed, meet := false, slices.Contains(through, coreEvents)
	for i := range rules {
		for j := range rules[:i] {
			if slices.Equal(rules[i].APIVersions, rules[j].APIVersions) {
				continue
			}
			mixed = true
			meet = meet || overlap(&rules[i].Rule, &rules[j].Rule)
		}
	}
	switch {
	case meet:
		return canonicalJSON(rules), true
	case mixed:
		return canonicalJSON(versionsByResource(rules)), false
	default:
		return strings.Join(rules[0].APIVersions, ","), false
	}
}

func versionsByResource(rules []admissionregistrationv1.RuleWithOperations) []string {
	var out []string
	for _, a := range unitsOf(rules) {
		out = append(out, a.group+"/"+a.resource+"="+a.versions)
	}
	return sortedSet(out)
}

// overlap reports whether there is a resource that both rules match, leaving
// versions, scope and operations aside.
func overlap(a, b *admissionregistrationv1.Rule) bool {
	return slices.ContainsFunc(a.APIGroups, func(g string) bool {
		return g == wildcard || slices.Contains(b.APIGroups, g) || slices.Contains(b.APIGroups, wildcard)
	}) && slices.ContainsFunc(a.Resources, func(r string) bool {
		return slices.ContainsFunc(b.Resources, func(s string) bool { return resourcesOverlap(r, s) })
	})
}

func resourcesOverlap(a, b string) bool {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	return (resourceA == resourceB || resourceA == wildcard || resourceB == wildcard) &&
		(subA == subB || subA == wildcard || subB == wildcard)
}
