package validation

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const wildcard = "*"

// maxPairs is the maximum number of pairs of API group and resource in the rules of
// a policy.
const maxPairs = 1000

// The messages of the rules that hack/crdlimits has for the fields of a rule.
const (
	// MessageVersion is about an empty entry of apiVersions.
	MessageVersion = "write an API version such as v1, or '*' for all"
	// MessageResource is about an empty entry of resources.
	MessageResource = "write a resource such as pods, or '*' for all"
	// MessageAllResources is about "*" in resources beside other resources.
	MessageAllResources = "keep '*' in resources beside subresources only, or remove it: it already stands for all resources"
	// MessageEverything is about "*/*" in resources beside other entries.
	MessageEverything = "keep '*/*' alone in resources, or remove it: it already stands for all resources and subresources"
	// MessageObjectName is about an entry of resourceNames.
	MessageObjectName = "write the name of one object: not empty, '.' or '..', and without '/' and '%'"
)

// MessageAlone is the message about "*" beside other entries of a list.
func MessageAlone(list string) string {
	return "keep '*' alone in " + list + ", or remove it: it already stands for all"
}

func checkRules(rules []admissionregistrationv1.NamedRuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	pairs := 0
	for i := range rules {
		r := &rules[i]
		pairs += len(r.APIGroups) * len(r.Resources)
		errs = append(errs, checkNames(r.ResourceNames, at.Index(i).Child("resourceNames"))...)
		errs = append(errs, CheckRule(&r.RuleWithOperations, at.Index(i))...)
	}
	if pairs > maxPairs {
		errs = append(errs, field.Invalid(at, pairs, fmt.Sprintf(
			"use wildcards or several policies: the rules list more than %d pairs of API group and resource", maxPairs)))
	}
	return errs
}

func checkNames(names []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		if len(content.IsPathSegmentName(name)) > 0 {
			errs = append(errs, field.Invalid(at.Index(i), name, MessageObjectName))
		}
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at.Index(i), name))
		}
	}
	return errs
}

// CheckRule returns the errors for which API servers reject a rule of a webhook.
func CheckRule(rule *admissionregistrationv1.RuleWithOperations, at *field.Path) field.ErrorList {
	errs := checkOperations(rule.Operations, at.Child("operations"))
	errs = append(errs,
		checkList(rule.APIGroups, at.Child("apiGroups"), "apiGroups", `an API group, "" for the core group`)...)
	errs = append(errs, checkList(rule.APIVersions, at.Child("apiVersions"), "apiVersions", "an API version")...)
	for i, version := range rule.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), MessageVersion))
		}
	}
	errs = append(errs, checkResources(rule.Resources, at.Child("resources"))...)
	if rule.Scope != nil {
		errs = append(errs, checkValue(at.Child("scope"), *rule.Scope, []admissionregistrationv1.ScopeType{
			admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope, admissionregistrationv1.AllScopes,
		})...)
	}
	return errs
}

func checkOperations(list []admissionregistrationv1.OperationType, at *field.Path) field.ErrorList {
	errs := checkList(list, at, "operations", "an operation")
	for i, o := range list {
		if !isOperation(o) {
			errs = append(errs, field.NotSupported(at.Index(i), o, validOperations()))
		}
	}
	return errs
}

func validOperations() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
		admissionregistrationv1.Connect, admissionregistrationv1.OperationAll,
	}
}

func isOperation(o admissionregistrationv1.OperationType) bool {
	return slices.Contains(validOperations(), o)
}

// checkList rejects an empty list, and "*" together with other entries.
func checkList[S ~string](list []S, at *field.Path, name, one string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(at, "add "+one+", or \"*\" for all")}
	case len(list) > 1 && slices.Contains(list, wildcard):
		return field.ErrorList{field.Invalid(at, list, MessageAlone(name))}
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
	lastPlain := ""
	for i, entry := range list {
		resource, _, isSub := strings.Cut(entry, "/")
		if !isSub {
			lastPlain = entry
		}
		if resource == "" {
			errs = append(errs, field.Required(at.Index(i), MessageResource))
		}
		if wide := widerEntry(list[:i], entry); wide != "" {
			errs = append(errs, field.Invalid(at.Index(i), entry,
				fmt.Sprintf("remove it: %q, earlier in the list, matches it too", wide)))
		}
	}
	switch {
	case len(list) > 1 && slices.Contains(list, "*/*"):
		errs = append(errs, field.Invalid(at, list, MessageEverything))
	case slices.Contains(list, wildcard) && lastPlain != wildcard:
		errs = append(errs, field.Invalid(at, list, MessageAllResources))
	}
	return errs
}

// widerEntry returns an entry that matches a subresource too, "" if there is none.
func widerEntry(before []string, entry string) string {
	resource, subresource, isSub := strings.Cut(entry, "/")
	for _, wide := range []string{resource + "/*", "*/" + subresource} {
		if isSub && slices.Contains(before, wide) {
			return wide
		}
	}
	return ""
}

// resourceRules warns about rules that match what the cluster needs to run.
func (w *warner) resourceRules(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	for i := range rulesOf(spec) {
		rule := &rulesOf(spec)[i]
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
				w.critical(spec, writtenBy(rule.APIGroups, entry), here.Index(j))
			}
		}
	}
}

// names warns of requests that resourceNames does not match, as in native policies. A DELETE of a collection has no name.
// With generateName an object has no name when mutations run, and one with a random suffix when validations do.
func (w *warner) names(rule *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) {
	has := func(operation admissionregistrationv1.OperationType) bool {
		return slices.Contains(rule.Operations, operation) ||
			slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
	}
	if has(admissionregistrationv1.Delete) {
		w.warn(at,
			"a DELETE of a collection has no name and does not match; remove resourceNames and compare "+
				"oldObject.metadata.name in an expression")
	}
	if has(admissionregistrationv1.Create) {
		w.warn(at,
			"an object with generateName has no name in mutations and a random suffix in validations, "+
				"and does not match; compare object.metadata.generateName in an expression if it matters")
	}
}

func (w *warner) broad(spec *v1alpha1.WebhookPolicySpec, entry string, at *field.Path) {
	if failsClosed(spec) {
		w.warn(at,
			"%q with failurePolicy Fail: while %s does not answer, writes to all these resources are "+
				"denied; name the resources, or set failurePolicy: Ignore", entry, answererOf(spec))
	}
	if mutates(spec) {
		w.warn(at,
			"%q with mutations: they change objects of controllers, which then write them again; name "+
				"the resources", entry)
	}
}

func (w *warner) critical(spec *v1alpha1.WebhookPolicySpec, resource string, at *field.Path) {
	if resource == "" {
		return
	}
	if failsClosed(spec) {
		w.warn(at,
			"the control plane writes %s, and its writes are denied while %s does not answer: set "+
				"failurePolicy: Ignore", resource, answererOf(spec))
	}
	if mutates(spec) {
		w.warn(at, "the control plane writes %s, and reverts changes of mutations: do not mutate them", resource)
	}
}

// writtenBy returns a resource that the control plane writes all the time, or "".
// Without it nodes count as dead, nothing is scheduled, and Services have no endpoints.
func writtenBy(groups []string, entry string) string {
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
