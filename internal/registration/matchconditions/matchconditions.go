// Package matchconditions delegates a part of a policy's matching to the API
// server, as a match condition of a webhook: the API server then does not call
// the webhook for requests that the policy does not match.
//
// A delegated condition excludes only requests that the policy does not match;
// Ostiary evaluates resource names, exclusions and match conditions again for
// the other requests. It has no errors: an error would decide the request with
// a message of the API server, without an evaluation of the policy. See
// errorFree.
//
// The matchConditions of a policy are delegated together or not at all, and
// never with a paramKind: a missing param is an error whatever the conditions
// say.
package matchconditions

import (
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// maxSize limits the delegated condition of one policy, in bytes.
const maxSize = 4 << 10

// Condition returns a CEL expression without errors that is false only for
// requests that the policy does not match. It is empty if nothing is delegated.
func Condition(spec *v1alpha1.WebhookPolicySpec) string {
	var parts []string
	if match := spec.MatchConstraints; match != nil {
		parts = append(parts, names(match.ResourceRules), exclusions(match.ExcludeResourceRules))
	}
	if spec.ParamKind == nil {
		parts = append(parts, conditions(spec.MatchConditions))
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	out := strings.Join(parts, " && ")
	if len(out) > maxSize {
		return ""
	}
	return out
}

func conditions(list []admissionregistrationv1.MatchCondition) string {
	parts := make([]string, len(list))
	for i := range list {
		part, ok := errorFree(list[i].Expression)
		if !ok {
			return ""
		}
		parts[i] = part
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), " && ")
}

// names returns a condition for resourceNames: it is false if no rule contains
// the name of the object, and no rule without names contains the resource of the
// request, before or after conversion.
func names(rules []admissionregistrationv1.NamedRuleWithOperations) string {
	var named, others []string
	for i := range rules {
		named = append(named, rules[i].ResourceNames...)
		if len(rules[i].ResourceNames) > 0 {
			continue
		}
		for _, entry := range rules[i].Resources {
			resource, _, _ := strings.Cut(entry, "/")
			if resource == "*" {
				return ""
			}
			others = append(others, resource)
		}
	}
	if len(named) == 0 {
		return ""
	}
	out := "has(request.name) && request.name in " + celList(named)
	if len(others) == 0 {
		return "(" + out + ")"
	}
	return "(" + out + " || request.resource.resource in " + celList(others) +
		" || has(request.requestResource) && request.requestResource.resource in " + celList(others) + ")"
}

// exclusions returns a condition that is false for requests that match a rule of
// excludeResourceRules before conversion.
func exclusions(rules []admissionregistrationv1.NamedRuleWithOperations) string {
	if len(rules) == 0 {
		return ""
	}
	parts := make([]string, len(rules))
	for i := range rules {
		parts[i] = "(" + matching(&rules[i]) + ")"
	}
	slices.Sort(parts)
	return "!(has(request.requestResource) && (" + strings.Join(slices.Compact(parts), " || ") + "))"
}

// matching returns a rule as a CEL expression.
func matching(rule *admissionregistrationv1.NamedRuleWithOperations) string {
	parts := []string{resources(rule.Resources)}
	for _, in := range []struct {
		field  string
		values []string
	}{
		{"request.requestResource.group", rule.APIGroups},
		{"request.requestResource.version", rule.APIVersions},
		{"request.operation", toStrings(rule.Operations)},
	} {
		if !slices.Contains(in.values, "*") {
			parts = append(parts, in.field+" in "+celList(in.values))
		}
	}
	if len(rule.ResourceNames) > 0 {
		parts = append(parts, "has(request.name) && request.name in "+celList(rule.ResourceNames))
	}
	if rule.Scope != nil && *rule.Scope != admissionregistrationv1.AllScopes {
		const namespaced = `has(request.namespace) && !(request.requestResource.group == "" && request.requestResource.version == "v1" && request.requestResource.resource == "namespaces")`
		if *rule.Scope == admissionregistrationv1.NamespacedScope {
			parts = append(parts, namespaced)
		} else {
			parts = append(parts, "!("+namespaced+")")
		}
	}
	return strings.Join(parts, " && ")
}

// resources returns entries of a rule's resources as a CEL expression. As in the
// API server, "pods/*" matches pods too, and "*" matches no subresource.
func resources(entries []string) string {
	parts := make([]string, len(entries))
	for i, entry := range entries {
		resource, sub, _ := strings.Cut(entry, "/")
		var both []string
		if resource != "*" {
			both = append(both, "request.requestResource.resource == "+strconv.Quote(resource))
		}
		switch sub {
		case "*":
		case "":
			both = append(both, "!has(request.requestSubResource)")
		default:
			both = append(both, "has(request.requestSubResource) && request.requestSubResource == "+strconv.Quote(sub))
		}
		if len(both) == 0 {
			both = []string{"true"}
		}
		parts[i] = strings.Join(both, " && ")
	}
	slices.Sort(parts)
	return "(" + strings.Join(parts, " || ") + ")"
}

func toStrings[S ~string](items []S) []string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = string(item)
	}
	return out
}

// celList returns a CEL list of the items, sorted and without duplicates.
func celList(items []string) string {
	sorted := slices.Clone(items)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	for i := range sorted {
		sorted[i] = strconv.Quote(sorted[i])
	}
	return "[" + strings.Join(sorted, ", ") + "]"
}
