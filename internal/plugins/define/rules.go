package define

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Writes returns the operations of most plugins.
func Writes() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
}

// Rule returns a rule for resources of one version of a group.
func Rule(group, version string, operations []admissionregistrationv1.OperationType, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources,
		},
	}
}

// Pods returns a rule for Pods.
func Pods(operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{Rule("", "v1", operations, "pods")}
}
