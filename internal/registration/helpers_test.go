package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type rule = admissionregistrationv1.NamedRuleWithOperations

func everything() rule {
	return rule{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
}

func eventsRule() rule {
	r := ruleOf("", "events")
	r.APIGroups = append(r.APIGroups, "events.k8s.io")
	return r
}

func ruleOf(group string, resources ...string) rule {
	r := everything()
	r.APIGroups, r.Resources = []string{group}, resources
	return r
}

func labelIn(key string, values ...string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}
