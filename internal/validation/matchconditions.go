package validation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// checkMatchConditions checks the names and the number of the matchConditions of a policy
// with a backend, to whose webhook Ostiary adds conditions of its own.
func checkMatchConditions(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if spec.Backend == nil {
		return nil
	}
	at = at.Child("matchConditions")
	var errs field.ErrorList
	for i, c := range spec.MatchConditions {
		if guard.IsOwnCondition(c.Name) {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), c.Name,
				"choose another name: Ostiary has a condition of this name"))
		}
	}
	added := 0
	if guard.Needed(plainRules(rulesOf(spec)), guard.AllowedCritical(spec)) {
		added++
	}
	if spec.BreakGlass {
		added++
	}
	if n := len(spec.MatchConditions); n+added > guard.MaxConditions {
		errs = append(errs, field.TooMany(at, n, guard.MaxConditions-added))
	}
	return errs
}

// plainRules returns rules without their resourceNames.
func plainRules(rules []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	out := make([]admissionregistrationv1.RuleWithOperations, len(rules))
	for i := range rules {
		out[i] = rules[i].RuleWithOperations
	}
	return out
}
