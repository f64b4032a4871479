package validation

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

const guardReason = "so that a broken policy cannot lock the cluster"

// checkAllowCriticalResources rejects allowCriticalResources in a policy that names no
// critical resource: wildcards never match them. checkResolved checks the rules of plugins.
func checkAllowCriticalResources(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if !spec.AllowCriticalResources || spec.Plugin != nil || lacksRules(spec) || len(guard.AllowedCritical(spec)) > 0 {
		return nil
	}
	return uselessAllowCritical(at)
}

func uselessAllowCritical(at *field.Path) field.ErrorList {
	return field.ErrorList{field.Forbidden(at.Child("allowCriticalResources"),
		"remove it, or name a critical resource with its API group in matchConstraints.resourceRules: "+
			"wildcards do not apply to critical resources")}
}

// checkGuards rejects rules that name guarded resources, except critical resources
// if the policy allows them. Wildcards that match guarded resources are valid.
func checkGuards(rule *admissionregistrationv1.Rule, allowed bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, group := range rule.APIGroups {
		switch {
		case guard.NeverCalled(group):
			errs = append(errs, field.Forbidden(at.Child("apiGroups").Index(i),
				fmt.Sprintf("remove %q: policies never apply to it, %s", group, guardReason)))
		case guard.Group(group) && slices.ContainsFunc(rule.Resources, isAnyResource):
			errs = append(errs, field.Forbidden(at.Child("apiGroups").Index(i), fmt.Sprintf(
				"remove %q, or name its resources instead of \"*\": wildcards do not apply to it, %s", group, guardReason)))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	for i, entry := range rule.Resources {
		if problem := guardedEntryError(rule.APIGroups, entry, allowed); problem != "" {
			errs = append(errs, field.Forbidden(at.Child("resources").Index(i), problem+", "+guardReason))
		}
	}
	return errs
}

func isAnyResource(entry string) bool {
	resource, _, _ := strings.Cut(entry, "/")
	return resource == wildcard
}

// guardedEntryError returns the error of one entry of a rule's resources, empty if
// there is none. allowed is allowCriticalResources of the policy.
func guardedEntryError(groups []string, entry string, allowed bool) string {
	resource, _, _ := strings.Cut(entry, "/")
	for _, group := range groups {
		switch {
		case !guard.Resource(group, resource):
		case guard.Critical(group, resource) == nil:
			return fmt.Sprintf("remove %q or the API group %q: policies never apply to this resource of this group", entry, group)
		case !allowed:
			return fmt.Sprintf("remove %q, or set spec.allowCriticalResources to true: by default policies do not apply to it", entry)
		}
	}
	if slices.Contains(groups, wildcard) && guard.Name(resource) {
		return fmt.Sprintf(
			"remove %q, or name its API groups instead of \"*\": wildcards do not apply to the %s of Kubernetes and Ostiary", entry, resource)
	}
	return ""
}

// allowCriticalResources warns about policies for reviews of authentication and authorization.
func (w *warner) allowCriticalResources(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if !spec.AllowCriticalResources || !failsClosed(spec) {
		return
	}
	for i, rule := range rulesOf(spec) {
		for j, group := range rule.APIGroups {
			if group == authenticationv1.GroupName || group == authorizationv1.GroupName {
				w.warn(at.Child("matchConstraints", "resourceRules").Index(i).Child("apiGroups").Index(j),
					"kubelets and other API servers send these reviews to authenticate and authorize callers, "+
						"and reject all callers while %s does not answer: set failurePolicy: Ignore", answererOf(spec))
			}
		}
	}
}
