// Package guard knows the requests for which no webhook of a policy is called, so that a
// broken policy cannot lock the cluster: those for guarded resources, and those in exempt
// namespaces. The plan of registrations, the checks of policies and the audit agree by it.
package guard

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const wildcard = "*"

// The two names of events, as group/resource.
const (
	CoreEvents  = "/events"
	NamedEvents = "events.k8s.io/events"
)

// Group reports whether all resources of an API group are guarded. Without them, broken
// policies cannot be corrected or deleted, or requests cannot be authorized.
// authentication.k8s.io and authorization.k8s.io contain only reviews, events.k8s.io only
// events.
func Group(group string) bool {
	switch group {
	case v1alpha1.GroupName, admissionregistrationv1.GroupName, "authentication.k8s.io", "authorization.k8s.io", "events.k8s.io":
		return true
	}
	return false
}

// Resource reports whether webhooks are not called for a resource by default. Nodes and
// leaders depend on Leases, and events are needed to diagnose failures. Both are written
// very often.
func Resource(group, resource string) bool {
	return Group(group) ||
		group == corev1.GroupName && resource == "events" ||
		group == "coordination.k8s.io" && resource == "leases"
}

// Name reports whether a resource of this name is guarded in any API group. It is for
// rules with the API group "*".
func Name(resource string) bool {
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

// NeverCalled reports whether policies never apply to an API group, because a broken
// policy for it could not be corrected or deleted.
func NeverCalled(group string) bool {
	return group == v1alpha1.GroupName || group == admissionregistrationv1.GroupName
}

// Critical returns the guarded resources that a policy for this resource can allow, as
// group/resource, nil if there are none. Events are the same objects in two API groups: a
// policy for one gets those of the other, converted.
func Critical(group, resource string) []string {
	switch name := group + "/" + resource; name {
	case CoreEvents, NamedEvents:
		return []string{CoreEvents, NamedEvents}
	case "coordination.k8s.io/leases", "authentication.k8s.io/tokenreviews", "authentication.k8s.io/selfsubjectreviews",
		"authorization.k8s.io/subjectaccessreviews", "authorization.k8s.io/localsubjectaccessreviews",
		"authorization.k8s.io/selfsubjectaccessreviews", "authorization.k8s.io/selfsubjectrulesreviews":
		return []string{name}
	}
	return nil
}

// AllowedCritical returns the critical resources that the rules of a policy with
// allowCriticalResources name, sorted. Wildcards match none.
func AllowedCritical(spec *v1alpha1.WebhookPolicySpec) []string {
	if !spec.AllowCriticalResources || spec.MatchConstraints == nil {
		return nil
	}
	return NamedCritical(spec.MatchConstraints.ResourceRules)
}

// NamedCritical returns the critical resources that rules name, sorted.
func NamedCritical(rules []admissionregistrationv1.NamedRuleWithOperations) []string {
	var out []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, entry := range rule.Resources {
				out = append(out, Critical(group, withoutSubresource(entry))...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Excludes reports whether no webhook of a policy is called for the objects of a resource
// in a namespace: the namespace is exempt, or the resource is guarded. For a Namespace, the
// namespace is its name. The exempt namespaces include Kubernetes' own: see ExemptNamespaces.
func Excludes(spec *v1alpha1.WebhookPolicySpec, resource schema.GroupResource, namespace string, exempt []string) bool {
	if namespace != "" && slices.Contains(exempt, namespace) {
		return true
	}
	return Resource(resource.Group, resource.Resource) &&
		!slices.Contains(AllowedCritical(spec), resource.Group+"/"+resource.Resource)
}

// ExemptNamespaces returns the namespaces with those of the control plane and of node
// Leases, sorted.
func ExemptNamespaces(more []string) []string {
	out := append([]string{metav1.NamespaceSystem, corev1.NamespaceNodeLease}, more...)
	slices.Sort(out)
	return slices.Compact(out)
}
