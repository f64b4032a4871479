package registration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	guardName  = "not-critical-resources"
	exemptName = "not-exempt-namespaces"
)

// guardExpression says in CEL what guarded says in Go. Subresources share
// request.resource.resource with their resource.
const guardExpression = `!(request.resource.group in ['admission.ostiary.dev', 'admissionregistration.k8s.io', 'authentication.k8s.io', 'authorization.k8s.io', 'events.k8s.io'] || ` +
	`request.resource.group == '' && request.resource.resource == 'events' || ` +
	`request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')`

// guardedGroup lists the API groups that no webhook is called for unasked: without
// them a broken policy could not be mended or deleted, or no request could be
// authorized. All that authentication.k8s.io and authorization.k8s.io hold are
// reviews, and all that events.k8s.io holds are events.
func guardedGroup(group string) bool {
	switch group {
	case v1alpha1.GroupName, admissionregistrationv1.GroupName, "authentication.k8s.io", "authorization.k8s.io", "events.k8s.io":
		return true
	}
	return false
}

// guarded lists the resources that no webhook is called for unasked. Leases keep nodes
// and leaders alive, and events are how a cluster in trouble speaks; both are
// written at a rate that no webhook should see.
func guarded(group, resource string) bool {
	return guardedGroup(group) ||
		group == corev1.GroupName && resource == "events" ||
		group == "coordination.k8s.io" && resource == "leases"
}

// guardedName reports whether a resource of this name is guarded in some API
// group. It is for rules that name a resource in every group.
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

// neverCalled lists the API groups that no policy can ask to be called for:
// what it would break could not be mended.
func neverCalled(group string) bool {
	return group == v1alpha1.GroupName || group == admissionregistrationv1.GroupName
}

// critical are the guarded resources that a policy can ask to be called for, by
// API group and resource. Events are one kind of object in two API groups: who
// asks for one is shown those of the other, converted.
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

// allowedCritical are the guarded resources that a policy is called for after all,
// sorted: it says so, and its rules name them. Wildcards never reach one.
func allowedCritical(spec *v1alpha1.WebhookPolicySpec) []string {
	if !spec.AllowCriticalResources {
		return nil
	}
	return criticalOf(matchOf(spec).ResourceRules)
}

// criticalOf are the guarded resources that rules name, sorted.
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

// guards are what a webhook is not called for: guarded resources, but for those
// that are let through, and exempt namespaces. Both depend on its rules, which
// change with the members of its group.
type guards struct {
	critical []string
	exempt   []string
	// selector is the namespaceSelector of the members.
	selector metav1.LabelSelector
}

// conditions are the matchConditions that guard a webhook with these rules: one,
// or none where its rules need none.
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

// namespaceSelector is the members' one without the exempt namespaces, unless
// conditions leaves these out.
func (g *guards) namespaceSelector(rules []admissionregistrationv1.RuleWithOperations) *metav1.LabelSelector {
	out := g.selector.DeepCopy()
	if !slices.ContainsFunc(rules, labelsUntrusted) {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: slices.Clone(g.exempt),
		})
	}
	return out
}

// exemptExpression leaves out exempt namespaces by the request's namespace, which
// is the name of the Namespace where the request is for one. There is none for
// cluster-scoped resources, and for a Namespace whose name is yet to be generated.
func (g *guards) exemptExpression() string { // names of namespaces, in which nothing has to be escaped
	return `!has(request.namespace) || !(request.namespace in ['` + strings.Join(g.exempt, "', '") + `'])`
}

// labelsUntrusted reports whether API servers may match a namespaceSelector with labels
// that the sender of a request chooses: those of an object whose resource is called
// namespaces, in whatever API group. No custom resource is in a group without a dot.
func labelsUntrusted(rule admissionregistrationv1.RuleWithOperations) bool {
	return reachesNamespaces(rule) && slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return group == corev1.GroupName || group == wildcard || strings.Contains(group, ".")
	})
}

// guardConditions is the matchCondition that keeps guarded resources out, but
// for those that are let through, or nothing where the rules match no other.
func guardConditions(rules []admissionregistrationv1.RuleWithOperations, through []string) []admissionregistrationv1.MatchCondition {
	if !slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool { return reachesGuarded(rule, through) }) {
		return nil
	}
	expression := guardExpression
	if len(through) > 0 { // names of critical, in which nothing has to be escaped
		expression += ` || (request.resource.group + '/' + request.resource.resource) in ['` + strings.Join(through, "', '") + `']`
	}
	return []admissionregistrationv1.MatchCondition{{Name: guardName, Expression: expression}}
}

// ownConditions are the matchConditions of a webhook beside the guards.
func ownConditions(w *webhook) []admissionregistrationv1.MatchCondition {
	return slices.DeleteFunc(slices.Clone(w.MatchConditions), func(c admissionregistrationv1.MatchCondition) bool {
		return c.Name == guardName || c.Name == exemptName
	})
}

func reachesGuarded(rule admissionregistrationv1.RuleWithOperations, through []string) bool {
	return slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return group == wildcard || slices.ContainsFunc(rule.Resources, func(entry string) bool {
			resource, _, _ := strings.Cut(entry, "/")
			if resource == wildcard {
				return guarded(group, "events") || guarded(group, "leases")
			}
			return guarded(group, resource) && !slices.Contains(through, group+"/"+resource)
		})
	})
}

// exemptNamespaces adds those that the cluster itself lives in.
func exemptNamespaces(more []string) []string {
	return sortedSet(append([]string{metav1.NamespaceSystem, corev1.NamespaceNodeLease}, more...))
}
