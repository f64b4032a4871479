package guard

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
)

// The names of the match conditions that Ostiary adds to webhooks. A policy with a backend,
// whose webhook has its own conditions too, cannot use them.
const (
	// ResourcesCondition excludes guarded resources.
	ResourcesCondition = "not-critical-resources"
	// NamespacesCondition excludes exempt namespaces, in webhooks without ResourcesCondition.
	NamespacesCondition = "not-exempt-namespaces"
	// DelegatedCondition holds the matchConditions of policies that API servers can evaluate.
	DelegatedCondition = "matches-policy"
	// BreakGlassCondition excludes users that may skip the policy.
	BreakGlassCondition = "may-not-break-glass"
	// OtherVersionsCondition excludes requests in a version that have another webhook. No
	// webhook of a backend has it.
	OtherVersionsCondition = "other-versions"
)

// MaxConditions is the API server's limit on the match conditions of a webhook.
const MaxConditions = 64

// expression is the negation of Resource as a CEL expression. Subresources have the same
// request.resource.resource as their resource.
const expression = `!(request.resource.group in ['admission.ostiary.dev', 'admissionregistration.k8s.io', 'authentication.k8s.io', ` +
	`'authorization.k8s.io', 'events.k8s.io'] || ` +
	`request.resource.group == '' && request.resource.resource == 'events' || ` +
	`request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')`

// IsOwnCondition reports whether a match condition of this name is one of Ostiary's own.
func IsOwnCondition(name string) bool {
	switch name {
	case ResourcesCondition, NamespacesCondition, DelegatedCondition, BreakGlassCondition:
		return true
	}
	return false
}

// Needed reports whether a webhook with these rules needs a match condition that excludes
// guarded resources, except allowed ones, or exempt namespaces.
func Needed(rules []admissionregistrationv1.RuleWithOperations, allowed []string) bool {
	return reachesGuarded(rules, allowed) || slices.ContainsFunc(rules, LabelsUntrusted)
}

// Conditions returns the guard of a webhook with these rules: one match condition, or none
// if the rules need none. Allowed critical resources pass it.
func Conditions(rules []admissionregistrationv1.RuleWithOperations, allowed, exempt []string) []admissionregistrationv1.MatchCondition {
	byName := slices.ContainsFunc(rules, LabelsUntrusted)
	if !reachesGuarded(rules, allowed) {
		if !byName {
			return nil
		}
		return []admissionregistrationv1.MatchCondition{{Name: NamespacesCondition, Expression: ExemptExpression(exempt)}}
	}
	guard := expression
	if len(allowed) > 0 { // names of critical resources need no escaping
		guard += ` || (request.resource.group + '/' + request.resource.resource) in ['` + strings.Join(allowed, "', '") + `']`
	}
	if byName {
		guard = "(" + guard + ") && (" + ExemptExpression(exempt) + ")"
	}
	return []admissionregistrationv1.MatchCondition{{Name: ResourcesCondition, Expression: guard}}
}

// ExemptExpression excludes exempt namespaces by the request's namespace. In requests for
// a Namespace, this is its name. Requests for cluster-scoped resources, and for a Namespace
// without a name yet (generateName), have none.
func ExemptExpression(exempt []string) string { // names of namespaces need no escaping
	return `!has(request.namespace) || !(request.namespace in ['` + strings.Join(exempt, "', '") + `'])`
}

// OtherVersions excludes requests in which the client names a version, which has no
// characters that need escaping. API servers evaluate it before they convert the object.
func OtherVersions(version string) admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: OtherVersionsCondition, Expression: `request.requestResource.version != '` + version + `'`,
	}
}

// LabelsUntrusted reports whether API servers may evaluate a namespaceSelector on labels
// that the requesting client chooses: those of an object whose resource is called
// namespaces, in any API group. Groups of custom resources contain a dot.
func LabelsUntrusted(rule admissionregistrationv1.RuleWithOperations) bool {
	return ReachesNamespaces(rule) && slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return group == corev1.GroupName || group == wildcard || strings.Contains(group, ".")
	})
}

// ReachesNamespaces reports whether a rule matches a resource called namespaces. As in the
// API server, which evaluates namespaceSelectors on the labels of such objects, the API
// group is irrelevant.
func ReachesNamespaces(rule admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rule.Resources, func(entry string) bool {
		resource := withoutSubresource(entry)
		return resource == wildcard || resource == "namespaces"
	})
}

// reachesGuarded reports whether a rule matches a guarded resource that is not allowed.
func reachesGuarded(rules []admissionregistrationv1.RuleWithOperations, allowed []string) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.ContainsFunc(rule.APIGroups, func(group string) bool {
			return group == wildcard || slices.ContainsFunc(rule.Resources, func(entry string) bool {
				resource := withoutSubresource(entry)
				if resource == wildcard {
					return Resource(group, "events") || Resource(group, "leases")
				}
				return Resource(group, resource) && !slices.Contains(allowed, group+"/"+resource)
			})
		})
	})
}

func withoutSubresource(entry string) string {
	resource, _, _ := strings.Cut(entry, "/")
	return resource
}
