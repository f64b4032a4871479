package registration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// maxPairs is the maximum number of pairs of API group and resource in the rules of
// a policy.
const maxPairs = 1000

// maxOrder limits orders to four digits, so that names sort like the numbers.
const maxOrder = 1000

const guardReason = "so that a broken policy cannot lock the cluster"

// Check returns the errors that prevent the registration of a policy. API servers
// accept the webhook configuration of a policy without errors.
func Check(policy *v1alpha1.WebhookPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(checkCall(&policy.Spec, spec), checkBackend(&policy.Spec, spec)...)
	errs = append(errs, checkPlugin(&policy.Spec, spec)...)
	errs = append(errs, checkTemplates(&policy.Spec, spec.Child("podTemplates"))...)
	at := spec.Child("matchConstraints")
	match := policy.Spec.MatchConstraints
	if policy.Spec.Plugin != nil && match == nil {
		match = &admissionregistrationv1.MatchResources{}
	}
	if policy.Spec.Plugin == nil && (match == nil || len(match.ResourceRules) == 0) {
		return append(errs, field.Required(at.Child("resourceRules"), "add at least one rule that names the requests this policy is for"))
	}
	errs = append(errs, checkMatch(match, at)...)
	for i := range match.ResourceRules {
		errs = append(errs, checkGuards(&match.ResourceRules[i].Rule, policy.Spec.AllowCriticalResources, at.Child("resourceRules").Index(i))...)
	}
	errs = append(errs, checkCriticalResources(&policy.Spec, spec)...)
	if len(policy.Spec.Mutations) > 0 && !slices.ContainsFunc(match.ResourceRules, mayMutate) {
		errs = append(errs, field.Required(at.Child("resourceRules"), "add CREATE, UPDATE or CONNECT to the operations of a rule: mutations are not called for DELETE"))
	}
	for i, binding := range policy.Spec.Bindings {
		if binding.MatchResources != nil {
			errs = append(errs, checkMatch(binding.MatchResources, spec.Child("bindings").Index(i).Child("matchResources"))...)
		}
	}
	return errs
}

func checkCall(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !spec.Mutates() && !spec.Validates() && spec.Backend == nil && spec.Plugin == nil {
		errs = append(errs, field.Required(at, "add at least one entry to mutations, validations or auditAnnotations, or a plugin or a backend"))
	}
	if p := spec.EffectiveFailurePolicy(); p != admissionregistrationv1.Fail && p != admissionregistrationv1.Ignore {
		errs = append(errs, field.NotSupported(at.Child("failurePolicy"), p,
			[]admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}))
	}
	if t := spec.EffectiveTimeoutSeconds(); t < 1 || t > 30 {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), t, "choose between 1 and 30 seconds"))
	}
	if p := spec.EffectiveReinvocationPolicy(); p != admissionregistrationv1.NeverReinvocationPolicy && p != admissionregistrationv1.IfNeededReinvocationPolicy {
		errs = append(errs, field.NotSupported(at.Child("reinvocationPolicy"), p, []admissionregistrationv1.ReinvocationPolicyType{
			admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy,
		}))
	}
	if o := spec.EffectiveOrder(); o < 0 || o > maxOrder {
		errs = append(errs, field.Invalid(at.Child("order"), o, fmt.Sprintf("choose between 0 and %d", maxOrder)))
	}
	return errs
}

// mayMutate reports whether a rule has an operation other than DELETE. It is also
// true for rules without a known operation, for which there is another error.
func mayMutate(rule admissionregistrationv1.NamedRuleWithOperations) bool {
	return operationsOf(rule.Operations) != opDelete
}

func checkMatch(match *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := matchPolicy(match); p != admissionregistrationv1.Exact && p != admissionregistrationv1.Equivalent {
		errs = append(errs, field.NotSupported(at.Child("matchPolicy"), p,
			[]admissionregistrationv1.MatchPolicyType{admissionregistrationv1.Exact, admissionregistrationv1.Equivalent}))
	}
	errs = append(errs, checkSelectors(match, at)...)
	errs = append(errs, checkRules(match.ResourceRules, at.Child("resourceRules"))...)
	return append(errs, checkRules(match.ExcludeResourceRules, at.Child("excludeResourceRules"))...)
}

func checkSelectors(match *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	var strict metav1validation.LabelSelectorValidationOptions
	errs := metav1validation.ValidateLabelSelector(match.NamespaceSelector, strict, at.Child("namespaceSelector"))
	errs = append(errs, metav1validation.ValidateLabelSelector(match.ObjectSelector, strict, at.Child("objectSelector"))...)
	if len(errs) > 0 || match.NamespaceSelector == nil {
		return errs
	}
	selector := match.NamespaceSelector
	if name, ok := selector.MatchLabels[corev1.LabelMetadataName]; ok {
		errs = append(errs, checkExempt([]string{name}, at.Child("namespaceSelector", "matchLabels").Key(corev1.LabelMetadataName))...)
	}
	for i, r := range selector.MatchExpressions {
		if r.Key == corev1.LabelMetadataName && r.Operator == metav1.LabelSelectorOpIn {
			errs = append(errs, checkExempt(r.Values, at.Child("namespaceSelector", "matchExpressions").Index(i).Child("values"))...)
		}
	}
	return errs
}

// checkExempt rejects a selection of only exempt namespaces.
func checkExempt(selected []string, at *field.Path) field.ErrorList {
	exempt := ExemptNamespaces(nil)
	if slices.ContainsFunc(selected, func(name string) bool { return !slices.Contains(exempt, name) }) {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, fmt.Sprintf(
		"select other namespaces too: policies never apply in %s, %s", strings.Join(exempt, " and "), guardReason))}
}

func checkRules(rules []admissionregistrationv1.NamedRuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	pairs := 0
	for i := range rules {
		r := &rules[i]
		pairs += len(r.APIGroups) * len(r.Resources)
		errs = append(errs, checkNames(r.ResourceNames, at.Index(i).Child("resourceNames"))...)
		errs = append(errs, checkOperations(r.Operations, at.Index(i).Child("operations"))...)
		errs = append(errs, checkRule(&r.Rule, at.Index(i))...)
	}
	if pairs > maxPairs {
		errs = append(errs, field.Invalid(at, pairs, fmt.Sprintf(
			"use wildcards or several policies: the rules list more than %d pairs of API group and resource", maxPairs)))
	}
	return errs
}

func checkNames(names []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := set{}
	for i, name := range names {
		for _, msg := range content.IsPathSegmentName(name) {
			errs = append(errs, field.Invalid(at.Index(i), name, msg))
		}
		if seen.has(name) {
			errs = append(errs, field.Duplicate(at.Index(i), name))
		}
		seen[name] = struct{}{}
	}
	return errs
}

func checkOperations(list []admissionregistrationv1.OperationType, at *field.Path) field.ErrorList {
	errs := checkList(list, at, "an operation", "operations")
	for i, op := range list {
		if operationsOf(list[i:i+1]) == 0 {
			errs = append(errs, field.NotSupported(at.Index(i), op, append([]admissionregistrationv1.OperationType{wildcard}, (opAll&^opAny).list()...)))
		}
	}
	return errs
}

func checkRule(rule *admissionregistrationv1.Rule, at *field.Path) field.ErrorList {
	errs := checkList(rule.APIGroups, at.Child("apiGroups"), `an API group, "" for the core group`, "API groups")
	errs = append(errs, checkList(rule.APIVersions, at.Child("apiVersions"), "an API version", "API versions")...)
	for i, version := range rule.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), "name an API version, or remove the entry"))
		}
	}
	errs = append(errs, checkResources(rule.Resources, at.Child("resources"))...)
	switch scopeOf(rule.Scope) {
	case admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope:
	default:
		errs = append(errs, field.NotSupported(at.Child("scope"), *rule.Scope, []admissionregistrationv1.ScopeType{
			admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope,
		}))
	}
	return errs
}

// checkList rejects an empty list, and "*" together with other entries.
func checkList[S ~string](list []S, at *field.Path, one, many string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(at, "add "+one+", or \"*\" for all")}
	case len(list) > 1 && slices.Contains(list, wildcard):
		return field.ErrorList{field.Invalid(at, list, "remove \"*\", or all other "+many+": it matches them too")}
	}
	return nil
}

// checkResources rejects entries that another entry matches, exactly if the API
// server rejects them, so that the rules of every native policy are valid.
func checkResources(list []string, at *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "add a resource, or \"*\" for all")}
	}
	var errs field.ErrorList
	before, lastPlain := set{}, ""
	for i, entry := range list {
		resource, subresource, isSub := strings.Cut(entry, "/")
		if !isSub {
			lastPlain = entry
		}
		if resource == "" {
			errs = append(errs, field.Required(at.Index(i), "name a resource, or remove the entry"))
		}
		for _, w := range []string{resource + "/*", "*/" + subresource} {
			if isSub && before.has(w) {
				errs = append(errs, field.Invalid(at.Index(i), entry, fmt.Sprintf("remove it: %q, earlier in the list, matches it too", w)))
				break
			}
		}
		before[entry] = struct{}{}
	}
	switch {
	case len(list) > 1 && slices.Contains(list, "*/*"):
		errs = append(errs, field.Invalid(at, list, "remove \"*/*\", or all other resources: it matches them too"))
	case slices.Contains(list, wildcard) && lastPlain != wildcard:
		errs = append(errs, field.Invalid(at, list, "remove \"*\", or all other resources without a subresource: it matches them too"))
	}
	return errs
}

// checkGuards rejects rules that name guarded resources, except critical resources
// if the policy allows them. Wildcards that match guarded resources are valid.
func checkGuards(rule *admissionregistrationv1.Rule, allowed bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, group := range rule.APIGroups {
		switch {
		case neverCalled(group):
			errs = append(errs, field.Forbidden(at.Child("apiGroups").Index(i), fmt.Sprintf("remove %q: policies never apply to it, %s", group, guardReason)))
		case guardedGroup(group) && slices.ContainsFunc(rule.Resources, anyResource):
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

func anyResource(entry string) bool {
	resource, _, _ := strings.Cut(entry, "/")
	return resource == wildcard
}

// guardedEntryError returns the error of one entry of a rule's resources, empty if
// there is none. allowed is allowCriticalResources of the policy.
func guardedEntryError(groups []string, entry string, allowed bool) string {
	resource, _, _ := strings.Cut(entry, "/")
	for _, group := range groups {
		switch {
		case !guarded(group, resource):
		case critical(group, resource) == nil:
			return fmt.Sprintf("remove %q or the API group %q: policies never apply to this resource of this group", entry, group)
		case !allowed:
			return fmt.Sprintf("remove %q, or set spec.allowCriticalResources to true: by default policies do not apply to it", entry)
		}
	}
	if slices.Contains(groups, wildcard) && guardedName(resource) {
		return fmt.Sprintf("remove %q, or name its API groups instead of \"*\": wildcards do not apply to the %s of Kubernetes and Ostiary", entry, resource)
	}
	return ""
}

// checkCriticalResources rejects allowCriticalResources in a policy that names no
// critical resource: wildcards never match them.
func checkCriticalResources(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if !spec.AllowCriticalResources || spec.Plugin != nil || len(allowedCritical(spec)) > 0 {
		return nil // CheckPlugin checks the rules of a plugin
	}
	return uselessAllowCritical(at)
}

// CheckPlugin returns the errors in allowCriticalResources of a policy with a
// plugin. The policy must have the rules of the plugin.
func CheckPlugin(policy *v1alpha1.WebhookPolicy) field.ErrorList {
	spec := &policy.Spec
	if spec.Plugin == nil {
		return nil
	}
	named := criticalOf(matchOf(spec).ResourceRules)
	switch {
	case spec.PodTemplates != nil && !spec.Plugin.Name.DecidesTemplates():
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "podTemplates"), fmt.Sprintf(
			"remove it: the plugin %s does not decide about pod templates", spec.Plugin.Name))}
	case spec.PodTemplates != nil && spec.TemplateOperation() == "":
		return field.ErrorList{noPodRule(field.NewPath("spec", "podTemplates"))}
	case spec.AllowCriticalResources && len(named) == 0:
		return uselessAllowCritical(field.NewPath("spec"))
	case !spec.AllowCriticalResources && len(named) > 0:
		return field.ErrorList{field.Required(field.NewPath("spec", "allowCriticalResources"), fmt.Sprintf(
			"set it to true: the plugin %s is for %s, to which policies do not apply by default, %s", spec.Plugin.Name, strings.TrimPrefix(named[0], "/"), guardReason))}
	}
	return nil
}

func uselessAllowCritical(at *field.Path) field.ErrorList {
	return field.ErrorList{field.Forbidden(at.Child("allowCriticalResources"),
		"remove it, or name a critical resource with its API group in matchConstraints.resourceRules: wildcards do not apply to critical resources")}
}
