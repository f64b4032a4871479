package validation

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

const (
	messageNoConstraints = "add matchConstraints: they select the requests of this policy"
	messageNoRules       = "add at least one rule that names the requests this policy is for"

	messageExclusionForBackend = "remove excludeResourceRules: webhooks have none; exclude requests with a matchCondition"
	messageNamesForBackend     = "remove resourceNames: webhooks have none; use a matchCondition on request.name"
)

func matchConstraintsSchema() []SchemaRule {
	const constraints, rules = "has(self.matchConstraints)", "has(self.matchConstraints.resourceRules)"
	return []SchemaRule{
		{
			At: "spec", Field: ".matchConstraints", Type: field.ErrorTypeRequired, Message: messageNoConstraints,
			Rule: "has(self.plugin) || " + constraints,
		}, {
			At: "spec", Field: ".matchConstraints.resourceRules", Type: field.ErrorTypeRequired, Message: messageNoRules,
			Rule: "has(self.plugin) || !" + constraints + " || (" + rules + " && size(self.matchConstraints.resourceRules) > 0)",
		}, {
			At: "spec", Field: ".matchConstraints.excludeResourceRules", Type: field.ErrorTypeForbidden,
			Message: messageExclusionForBackend,
			Rule:    "!has(self.backend) || !" + constraints + " || !has(self.matchConstraints.excludeResourceRules)",
		}, {
			At: "spec", Field: ".matchConstraints.resourceRules", Type: field.ErrorTypeForbidden, Message: messageNamesForBackend,
			Rule: "!has(self.backend) || !" + constraints + " || !" + rules +
				" || self.matchConstraints.resourceRules.all(r, !has(r.resourceNames))",
		},
	}
}

// lacksRules reports whether a policy without a plugin has no rules. No check of rules
// applies then, because checkMatchConstraints says that they are missing.
func lacksRules(spec *v1alpha1.WebhookPolicySpec) bool {
	return spec.Plugin == nil && len(rulesOf(spec)) == 0
}

func rulesOf(spec *v1alpha1.WebhookPolicySpec) []admissionregistrationv1.NamedRuleWithOperations {
	if spec.MatchConstraints == nil {
		return nil
	}
	return spec.MatchConstraints.ResourceRules
}

func checkMatchConstraints(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	at = at.Child("matchConstraints")
	match := spec.MatchConstraints
	switch {
	case match == nil && spec.Plugin != nil:
		return nil
	case match == nil:
		return field.ErrorList{field.Required(at, messageNoConstraints)}
	case lacksRules(spec):
		return field.ErrorList{field.Required(at.Child("resourceRules"), messageNoRules)}
	}
	errs := append(checkMatchForBackend(spec, at), checkMatch(match, at)...)
	for i := range match.ResourceRules {
		here := at.Child("resourceRules").Index(i)
		errs = append(errs, checkGuards(&match.ResourceRules[i].Rule, spec.AllowCriticalResources, here)...)
	}
	return errs
}

// checkMatchForBackend rejects what the webhook of a backend cannot have.
func checkMatchForBackend(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if spec.Backend == nil {
		return nil
	}
	var errs field.ErrorList
	if len(spec.MatchConstraints.ExcludeResourceRules) > 0 {
		errs = append(errs, field.Forbidden(at.Child("excludeResourceRules"), messageExclusionForBackend))
	}
	for i := range spec.MatchConstraints.ResourceRules {
		if len(spec.MatchConstraints.ResourceRules[i].ResourceNames) > 0 {
			errs = append(errs, field.Forbidden(at.Child("resourceRules").Index(i).Child("resourceNames"), messageNamesForBackend))
		}
	}
	return errs
}

// checkMatch checks the matchConstraints of a policy, and the matchResources of a binding.
func checkMatch(match *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if match.MatchPolicy != nil {
		errs = checkValue(at.Child("matchPolicy"), *match.MatchPolicy,
			[]admissionregistrationv1.MatchPolicyType{admissionregistrationv1.Exact, admissionregistrationv1.Equivalent})
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
	at = at.Child("namespaceSelector")
	if name, ok := match.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]; ok {
		errs = append(errs, checkExempt([]string{name}, at.Child("matchLabels").Key(corev1.LabelMetadataName))...)
	}
	for i, r := range match.NamespaceSelector.MatchExpressions {
		if r.Key == corev1.LabelMetadataName && r.Operator == metav1.LabelSelectorOpIn {
			errs = append(errs, checkExempt(r.Values, at.Child("matchExpressions").Index(i).Child("values"))...)
		}
	}
	return errs
}

// checkExempt rejects a selection of only exempt namespaces.
func checkExempt(selected []string, at *field.Path) field.ErrorList {
	exempt := guard.ExemptNamespaces(nil)
	if slices.ContainsFunc(selected, func(name string) bool { return !slices.Contains(exempt, name) }) {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, fmt.Sprintf(
		"select other namespaces too: policies never apply in %s, %s", strings.Join(exempt, " and "), guardReason))}
}

// matchConstraints warns about objectSelectors that clients can evade, also those of
// bindings.
func (w *warner) matchConstraints(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if !spec.Refuses() {
		return
	}
	const text = "the client that writes an object chooses its labels and can evade Deny; " +
		"use namespaceSelector, or match every object"
	if spec.Denies() && spec.MatchConstraints != nil && selects(spec.MatchConstraints.ObjectSelector) {
		w.warn(at.Child("matchConstraints", "objectSelector"), text)
	}
	for i, b := range spec.EffectiveBindings() {
		denies := slices.Contains(b.ValidationActions, admissionregistrationv1.Deny)
		if denies && b.MatchResources != nil && selects(b.MatchResources.ObjectSelector) {
			w.warn(at.Child("bindings").Index(i).Child("matchResources", "objectSelector"), text)
		}
	}
}

func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}
