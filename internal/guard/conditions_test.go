package guard

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestConditions(t *testing.T) {
	tests := map[string]bool{
		"apps/deployments":            false,
		"apps/*":                      false,
		"apps/*/*":                    false,
		"/pods":                       false,
		"/pods/*":                     false,
		"example.com/events":          false,
		"/*":                          true,
		"/namespaces":                 false,
		"/*/*":                        true,
		"/*/status":                   true,
		"/events":                     true,
		"coordination.k8s.io/*":       true,
		"coordination.k8s.io/leases":  true,
		"coordination.k8s.io/leasecs": false,
		"events.k8s.io/*":             true,
		"authorization.k8s.io/new":    true,
		"*/pods":                      true,
		"*/*/*":                       true,
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			group, resource, _ := strings.Cut(name, "/")
			rules := []admissionregistrationv1.RuleWithOperations{ruleOf("apps", "deployments"), ruleOf(group, resource)}
			conditions := Conditions(rules, nil, nil)
			if got := len(conditions) == 1 && conditions[0].Name == ResourcesCondition; got != want {
				t.Errorf("conditions: %v, want a guard: %t", conditions, want)
			}
			if got := Needed(rules, nil); got != (len(conditions) > 0) {
				t.Errorf("Needed is %t with %d conditions", got, len(conditions))
			}
		})
	}
}

func ruleOf(group, resource string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource},
		},
	}
}
