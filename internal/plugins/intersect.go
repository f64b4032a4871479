package plugins

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

const wildcard = "*"

// intersectRules returns the rules that match the requests of both the plugin and the policy. A
// policy without rules gets those of the plugin.
func intersectRules(own []admissionregistrationv1.RuleWithOperations, requested []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	if len(requested) == 0 {
		requested = []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: everything()}}
	}
	var out []admissionregistrationv1.NamedRuleWithOperations
	for i := range requested {
		for j := range own {
			if both, ok := intersect(&own[j], &requested[i].RuleWithOperations); ok {
				out = append(out, admissionregistrationv1.NamedRuleWithOperations{
					ResourceNames: slices.Clone(requested[i].ResourceNames), RuleWithOperations: both,
				})
			}
		}
	}
	return out
}

func everything() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{wildcard},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{wildcard}, APIVersions: []string{wildcard}, Resources: []string{"*/*"}},
	}
}

// intersect returns the rule for the requests that two rules match, if there are any.
func intersect(a, b *admissionregistrationv1.RuleWithOperations) (both admissionregistrationv1.RuleWithOperations, ok bool) {
	both.Operations = intersectLists(a.Operations, b.Operations)
	both.APIGroups = intersectLists(a.APIGroups, b.APIGroups)
	both.APIVersions = intersectLists(a.APIVersions, b.APIVersions)
	both.Resources = intersectResources(a.Resources, b.Resources)
	scopeA, scopeB := ptr.Deref(a.Scope, admissionregistrationv1.AllScopes), ptr.Deref(b.Scope, admissionregistrationv1.AllScopes)
	switch {
	case scopeA == admissionregistrationv1.AllScopes:
		both.Scope = b.Scope
	case scopeB == admissionregistrationv1.AllScopes || scopeA == scopeB:
		both.Scope = a.Scope
	default:
		return both, false
	}
	return both, len(both.Operations) > 0 && len(both.APIGroups) > 0 && len(both.APIVersions) > 0 && len(both.Resources) > 0
}

func intersectLists[S ~string](a, b []S) []S {
	switch {
	case slices.Contains(a, wildcard):
		return slices.Clone(b)
	case slices.Contains(b, wildcard):
		return slices.Clone(a)
	}
	return slices.DeleteFunc(slices.Clone(a), func(s S) bool { return !slices.Contains(b, s) })
}

// intersectResources does the same for resources with subresources.
func intersectResources(a, b []string) []string {
	var out []string
	for _, x := range a {
		for _, y := range b {
			if both, ok := intersectEntries(x, y); ok && !slices.Contains(out, both) {
				out = append(out, both)
			}
		}
	}
	return out
}

// intersectEntries returns the narrower of two entries, or the resource of one with the
// subresource of the other.
func intersectEntries(a, b string) (string, bool) {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	resource, ok := intersectNames(resourceA, resourceB)
	if !ok {
		return "", false
	}
	sub, ok := intersectNames(subA, subB)
	if !ok {
		return "", false
	}
	if sub == "" {
		return resource, true
	}
	return resource + "/" + sub, true
}

func intersectNames(a, b string) (string, bool) {
	switch {
	case a == b, b == wildcard:
		return a, true
	case a == wildcard:
		return b, true
	}
	return "", false
}
