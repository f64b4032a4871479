package registration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/guard"
)

// versionSignature returns a text that is equal for policies whose rules can share a
// webhook without changing the version of the objects that the policies get.
//
// With matchPolicy Equivalent the API server first looks for a rule that matches a
// request without conversion. If there is none, it takes the first rule, and the
// first other version of the resource, that match after a conversion. Therefore:
//
//   - If all rules have the same versions, these are the signature. They alone
//     determine to which version a request is converted.
//   - If versions differ, but no two rules with different versions match the same
//     resource, the signature contains the versions of each resource. The first case
//     then applies to each resource separately.
//   - Otherwise the order and every detail of the rules matter. The rules are the
//     signature, and the group has exactly these rules (ordered is true). This also
//     applies to allowed events: they exist in two API groups, and all rules
//     determine to which of them a request is converted.
func versionSignature(rules []admissionregistrationv1.RuleWithOperations, allowed []string) (signature string, ordered bool) {
	if len(rules) == 0 {
		return "", false
	}
	mixed, overlapping := false, slices.Contains(allowed, guard.CoreEvents)
	for i := range rules {
		for j := range rules[:i] {
			if slices.Equal(rules[i].APIVersions, rules[j].APIVersions) {
				continue
			}
			mixed = true
			overlapping = overlapping || overlap(&rules[i].Rule, &rules[j].Rule)
		}
	}
	switch {
	case overlapping:
		return canonicalJSON(rules), true
	case mixed:
		return canonicalJSON(versionsByResource(rules)), false
	default:
		return strings.Join(rules[0].APIVersions, ","), false
	}
}

func versionsByResource(rules []admissionregistrationv1.RuleWithOperations) []string {
	var out []string
	for _, u := range unitsOf(rules) {
		out = append(out, u.group+"/"+u.resource+"="+u.versions)
	}
	return sortedSet(out)
}

// overlap reports whether both rules match a common resource. It ignores versions,
// scope and operations.
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
