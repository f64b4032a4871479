package validation

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const wildcard = "*"

// longTimeout is the time in seconds after which many clients give up.
const longTimeout = 10

// failsClosed reports whether requests are denied while Ostiary does not answer, in at
// least one phase.
func failsClosed(spec *v1alpha1.WebhookPolicySpec) bool {
	return dependsOnOstiary(spec) || (spec.Backend != nil && spec.EffectiveFailurePolicy() == admissionregistrationv1.Fail)
}

// dependsOnOstiary is failsClosed for policies without a backend.
func dependsOnOstiary(spec *v1alpha1.WebhookPolicySpec) bool {
	return (spec.Mutates() && spec.EffectiveFailurePolicy() == admissionregistrationv1.Fail) ||
		(spec.Validates() && spec.WebhookFailurePolicy() == admissionregistrationv1.Fail)
}

// answerer returns the name of the component that answers the calls.
func answerer(spec *v1alpha1.WebhookPolicySpec) string {
	if spec.Backend != nil {
		return "the backend"
	}
	return "Ostiary"
}

// mutates reports whether objects are changed, by Ostiary or by a backend.
func mutates(spec *v1alpha1.WebhookPolicySpec) bool {
	return spec.Mutates() || (spec.Backend != nil && spec.Backend.Type == v1alpha1.BackendMutating)
}

func (w *warner) help(p *v1alpha1.WebhookPolicy) {
	if p.Annotations[v1alpha1.AnnotationHelp] != "" && p.HelpURL() == "" {
		w.warn(field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationHelp),
			"messages do not contain it: use an http or https URL of at most %d bytes", v1alpha1.MaxHelpBytes)
	}
}

func (w *warner) timeout(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if t := spec.EffectiveTimeoutSeconds(); t > longTimeout {
		w.warn(at.Child("timeoutSeconds"), "requests wait up to %d seconds while %s does not answer, longer than many clients do; choose %d or less", t, answerer(spec), longTimeout)
	}
}

func (w *warner) replicas(spec *v1alpha1.WebhookPolicySpec, facts ClusterInfo, at *field.Path) {
	if facts.Replicas == 1 && dependsOnOstiary(spec) {
		w.warn(at.Child("failurePolicy"), "Fail with a single replica of Ostiary: while it restarts, matching requests are denied; run two or more")
	}
}

// selectors warns about objectSelectors that clients can evade.
func (w *warner) selectors(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if !spec.Refuses() {
		return
	}
	const text = "the client that writes an object chooses its labels and can evade Deny; use namespaceSelector, or match every object"
	if spec.Denies() && spec.MatchConstraints != nil && selects(spec.MatchConstraints.ObjectSelector) {
		w.warn(at.Child("matchConstraints", "objectSelector"), text)
	}
	for i, b := range spec.EffectiveBindings() {
		if b.MatchResources != nil && selects(b.MatchResources.ObjectSelector) && slices.Contains(b.ValidationActions, admissionregistrationv1.Deny) {
			w.warn(at.Child("bindings").Index(i).Child("matchResources", "objectSelector"), text)
		}
	}
}

func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// rules warns about rules that match what the cluster needs to run.
func (w *warner) rules(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if spec.MatchConstraints == nil {
		return
	}
	for i := range spec.MatchConstraints.ResourceRules {
		rule := &spec.MatchConstraints.ResourceRules[i]
		at := at.Child("matchConstraints", "resourceRules").Index(i)
		if len(rule.ResourceNames) > 0 { // the author knows these objects
			w.names(rule, at.Child("resourceNames"))
			continue
		}
		here := at.Child("resources")
		for j, entry := range rule.Resources {
			if entry == wildcard || entry == "*/*" {
				w.broad(spec, entry, here.Index(j))
			} else {
				w.critical(spec, criticalOf(rule.APIGroups, entry), here.Index(j))
			}
		}
	}
}

// names warns of requests that resourceNames does not match, as in native policies. A DELETE of a collection has no name.
// With generateName an object has no name when mutations run, and one with a random suffix when validations do.
func (w *warner) names(rule *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) {
	has := func(operation admissionregistrationv1.OperationType) bool {
		return slices.Contains(rule.Operations, operation) || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
	}
	if has(admissionregistrationv1.Delete) {
		w.warn(at, "a DELETE of a collection has no name and does not match; remove resourceNames and compare oldObject.metadata.name in an expression")
	}
	if has(admissionregistrationv1.Create) {
		w.warn(at, "an object with generateName has no name in mutations and a random suffix in validations, and does not match; compare object.metadata.generateName in an expression if it matters")
	}
}

func (w *warner) broad(spec *v1alpha1.WebhookPolicySpec, entry string, at *field.Path) {
	if failsClosed(spec) {
		w.warn(at, "%q with failurePolicy Fail: while %s does not answer, writes to all these resources are denied; name the resources, or set failurePolicy: Ignore", entry, answerer(spec))
	}
	if mutates(spec) {
		w.warn(at, "%q with mutations: they change objects of controllers, which then write them again; name the resources", entry)
	}
}

func (w *warner) critical(spec *v1alpha1.WebhookPolicySpec, resource string, at *field.Path) {
	if resource == "" {
		return
	}
	if failsClosed(spec) {
		w.warn(at, "the control plane writes %s, and its writes are denied while %s does not answer: set failurePolicy: Ignore", resource, answerer(spec))
	}
	if mutates(spec) {
		w.warn(at, "the control plane writes %s, and reverts changes of mutations: do not mutate them", resource)
	}
}

// reviews warns about policies for reviews of authentication and authorization.
func (w *warner) reviews(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if !spec.AllowCriticalResources || !failsClosed(spec) || spec.MatchConstraints == nil {
		return
	}
	for i, rule := range spec.MatchConstraints.ResourceRules {
		for j, group := range rule.APIGroups {
			if group == authenticationv1.GroupName || group == authorizationv1.GroupName {
				w.warn(at.Child("matchConstraints", "resourceRules").Index(i).Child("apiGroups").Index(j),
					"kubelets and other API servers send these reviews to authenticate and authorize callers, and reject all callers while %s does not answer: set failurePolicy: Ignore", answerer(spec))
			}
		}
	}
}

// criticalOf returns a resource that the control plane writes all the time, or "".
// Without it nodes count as dead, nothing is scheduled, and Services have no endpoints.
func criticalOf(groups []string, entry string) string {
	for _, v := range []struct{ group, resource string }{
		{"", "nodes"}, {"", "nodes/status"}, {"", "pods/status"}, {"", "pods/binding"},
		{"", "endpoints"}, {"", "events"}, {"", "namespaces/status"}, {"", "namespaces/finalize"},
		{"apps", "controllerrevisions"}, {"coordination.k8s.io", "leases"}, {"discovery.k8s.io", "endpointslices"},
		{"events.k8s.io", "events"}, {"storage.k8s.io", "volumeattachments"}, {"storage.k8s.io", "csinodes"},
	} {
		if (slices.Contains(groups, v.group) || slices.Contains(groups, wildcard)) && reaches(entry, v.resource) {
			return v.resource
		}
	}
	return ""
}

// reaches reports whether an entry of a rule matches a resource or subresource. As in the
// API server, "pods/*" matches pods too.
func reaches(entry, resource string) bool {
	entryName, entrySub, _ := strings.Cut(entry, "/")
	name, sub, _ := strings.Cut(resource, "/")
	return (entryName == wildcard || entryName == name) && (entrySub == wildcard || entrySub == sub)
}
