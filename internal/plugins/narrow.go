package plugins

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

const wildcard = "*"

// narrow returns the rules that match the requests of both the plugin and the policy. A
// policy without rules gets those of the plugin.
func narrow(own []admissionregistrationv1.RuleWithOperations, asked []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	if len(asked) == 0 {
		asked = []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: everything()}}
	}
	var out []admissionregistrationv1.NamedRuleWithOperations
	for i := range asked {
		for j := range own {
			if both, ok := meet(&own[j], &asked[i].RuleWithOperations); ok {
				out = append(out, admissionregistrationv1.NamedRuleWithOperations{
					ResourceNames: slices.Clone(asked[i].ResourceNames), RuleWithOperations: both,
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

// meet returns the rule for the requests that two rules match, if there are any.
func meet(a, b *admissionregistrationv1.RuleWithOperations) (both admissionregistrationv1.RuleWithOperations, ok bool) {
	both.Operations = meetLists(a.Operations, b.Operations)
	both.APIGroups = meetLists(a.APIGroups, b.APIGroups)
	both.APIVersions = meetLists(a.APIVersions, b.APIVersions)
	both.Resources = meetResources(a.Resources, b.Resources)
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

func meetLists[S ~string](a, b []S) []S {
	switch {
	case slices.Contains(a, wildcard):
		return slices.Clone(b)
	case slices.Contains(b, wildcard):
		return slices.Clone(a)
	}
	return slices.DeleteFunc(slices.Clone(a), func(s S) bool { return !slices.Contains(b, s) })
}

// meetResources does the same for resources with subresources.
func meetResources(a, b []string) []string {
	var out []string
	for _, x := range a {
		for _, y := range b {
			if both, ok := meetEntries(x, y); ok && !slices.Contains(out, both) {
				out = append(out, both)
			}
		}
	}
	return out
}

// meetEntries returns the narrower of two entries, or the resource of one with the
// subresource of the other.
func meetEntries(a, b string) (string, bool) {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	resource, ok := meetNames(resourceA, resourceB)
	if !ok {
		return "", false
	}
	sub, ok := meetNames(subA, subB)
	if !ok {
		return "", false
	}
	if sub == "" {
		return resource, true
	}
	return resource + "/" + sub, true
}

func meetNames(a, b string) (string, bool) {
	switch {
	case a == b, b == wildcard:
		return a, true
	case a == wildcard:
		return b, true
	}
	return "", false
}
