package registration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	guardName  = "not-critical-resources"
	exemptName = "not-exempt-namespaces"
)

// guardExpression is the negation of guarded as a CEL expression. Subresources have
// the same request.resource.resource as their resource.
const guardExpression = `!(request.resource.group in ['admission.ostiary.dev', 'admissionregistration.k8s.io', 'authentication.k8s.io', 'authorization.k8s.io', 'events.k8s.io'] || ` +
	`request.resource.group == '' && request.resource.resource == 'events' || ` +
	`request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')`

// guardedGroup reports whether all resources of an API group are guarded. Without
// them, broken policies cannot be corrected or deleted, or requests cannot be
// authorized. authentication.k8s.io and authorization.k8s.io contain only reviews,
// events.k8s.io only events.
func guardedGroup(group string) bool {
	switch group {
	case v1alpha1.GroupName, admissionregistrationv1.GroupName, "authentication.k8s.io", "authorization.k8s.io", "events.k8s.io":
		return true
	}
	return false
}

// guarded reports whether webhooks are not called for a resource by default. Nodes
// and leaders depend on Leases, and events are needed to diagnose failures. Both are
// written very often.
func guarded(group, resource string) bool {
	return guardedGroup(group) ||
		group == corev1.GroupName && resource == "events" ||
		group == "coordination.k8s.io" && resource == "leases"
}

// guardedName reports whether a resource of this name is guarded in any API group.
// It is for rules with the API group "*".
func guardedName(resource string) bool {
	switch resource {
	case "events", "leases", "webhookpolicies",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"tokenreviews", "selfsubjectreviews", "subjectaccessreviews",
		"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews":
		return true
	}
	return false
}

// neverCalled reports whether policies never apply to an API group, because a broken
// policy for it could not be corrected or deleted.
func neverCalled(group string) bool {
	return group == v1alpha1.GroupName || group == admissionregistrationv1.GroupName
}

// critical returns the guarded resources that a policy for this resource can allow,
// as group/resource, nil if there are none. Events are the same objects in two API
// groups: a policy for one gets those of the other, converted.
func critical(group, resource string) []string {
	switch name := group + "/" + resource; name {
	case coreEvents, namedEvents:
		return []string{coreEvents, namedEvents}
	case "coordination.k8s.io/leases", "authentication.k8s.io/tokenreviews", "authentication.k8s.io/selfsubjectreviews",
		"authorization.k8s.io/subjectaccessreviews", "authorization.k8s.io/localsubjectaccessreviews",
		"authorization.k8s.io/selfsubjectaccessreviews", "authorization.k8s.io/selfsubjectrulesreviews":
		return []string{name}
	}
	return nil
}

const coreEvents, namedEvents = "/events", "events.k8s.io/events"

// allowedCritical returns the critical resources that the rules of a policy with
// allowCriticalResources name, sorted. Wildcards match none.
func allowedCritical(spec *v1alpha1.WebhookPolicySpec) []string {
	if !spec.AllowCriticalResources {
		return nil
	}
	return criticalOf(matchOf(spec).ResourceRules)
}

// criticalOf returns the critical resources that rules name, sorted.
func criticalOf(rules []admissionregistrationv1.NamedRuleWithOperations) []string {
	var out []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, entry := range rule.Resources {
				resource, _, _ := strings.Cut(entry, "/")
				out = append(out, critical(group, resource)...)
			}
		}
	}
	return sortedSet(out)
}

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
	out := guardConditions(rules, g.critical)
	switch {
	case !slices.ContainsFunc(rules, labelsUntrusted):
	case len(out) == 0:
		out = []admissionregistrationv1.MatchCondition{{Name: exemptName, Expression: g.exemptExpression()}}
	default:
		out[0].Expression = "(" + out[0].Expression + ") && (" + g.exemptExpression() + ")"
	}
	return out
}

// namespaceSelector returns the members' selector without the exempt namespaces,
// unless conditions excludes these.
func (g *guards) namespaceSelector(rules []admissionregistrationv1.RuleWithOperations) *metav1.LabelSelector {
	out := g.selector.DeepCopy()
	if !slices.ContainsFunc(rules, labelsUntrusted) {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: slices.Clone(g.exempt),
		})
	}
	return out
}

// exemptExpression excludes exempt namespaces by the request's namespace. In
// requests for a Namespace, this is its name. Requests for cluster-scoped resources,
// and for a Namespace without a name yet (generateName), have none.
func (g *guards) exemptExpression() string { // names of namespaces need no escaping
	return `!has(request.namespace) || !(request.namespace in ['` + strings.Join(g.exempt, "', '") + `'])`
}

// labelsUntrusted reports whether API servers may evaluate a namespaceSelector on
// labels that the requesting client chooses: those of an object whose resource is
// called namespaces, in any API group. Groups of custom resources contain a dot.
func labelsUntrusted(rule admissionregistrationv1.RuleWithOperations) bool {
	return reachesNamespaces(rule) && slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return group == corev1.GroupName || group == wildcard || strings.Contains(group, ".")
	})
}

// guardConditions returns the matchCondition that excludes guarded resources except
// the allowed ones, nil if the rules match no others.
func guardConditions(rules []admissionregistrationv1.RuleWithOperations, allowed []string) []admissionregistrationv1.MatchCondition {
	if !slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool { return reachesGuarded(rule, allowed) }) {
		return nil
	}
	expression := guardExpression
	if len(allowed) > 0 { // names of critical need no escaping
		expression += ` || (request.resource.group + '/' + request.resource.resource) in ['` + strings.Join(allowed, "', '") + `']`
	}
	return []admissionregistrationv1.MatchCondition{{Name: guardName, Expression: expression}}
}

// ownConditions returns the matchConditions of a webhook without the guard.
func ownConditions(w *webhook) []admissionregistrationv1.MatchCondition {
	return slices.DeleteFunc(slices.Clone(w.MatchConditions), func(c admissionregistrationv1.MatchCondition) bool {
		return c.Name == guardName || c.Name == exemptName
	})
}

func reachesGuarded(rule admissionregistrationv1.RuleWithOperations, allowed []string) bool {
	return slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return group == wildcard || slices.ContainsFunc(rule.Resources, func(entry string) bool {
			resource, _, _ := strings.Cut(entry, "/")
			if resource == wildcard {
				return guarded(group, "events") || guarded(group, "leases")
			}
			return guarded(group, resource) && !slices.Contains(allowed, group+"/"+resource)
		})
	})
}

// Excludes reports whether no webhook of a policy is called for the objects of a resource
// in a namespace: the namespace is exempt, or the resource is guarded. For a Namespace, the
// namespace is its name. The exempt namespaces include Kubernetes' own: see ExemptNamespaces.
func Excludes(spec *v1alpha1.WebhookPolicySpec, resource schema.GroupResource, namespace string, exempt []string) bool {
	if namespace != "" && slices.Contains(exempt, namespace) {
		return true
	}
	return guarded(resource.Group, resource.Resource) && !slices.Contains(allowedCritical(spec), resource.Group+"/"+resource.Resource)
}

// ExemptNamespaces returns the namespaces with those of the control plane and of node
// Leases, sorted.
func ExemptNamespaces(more []string) []string {
	return sortedSet(append([]string{metav1.NamespaceSystem, corev1.NamespaceNodeLease}, more...))
}
