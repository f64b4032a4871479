package validation

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	messageDeleteAlone = "add CREATE, UPDATE or CONNECT to the operations of a rule: mutations are not called for DELETE"
	// The definition rejects DELETE beside other operations too: see mutationsSchema.
	messageDelete = "remove DELETE from operations: mutations do not apply to it, and the policy has nothing else"
)

// mutationsSchema rejects more than checkMutations, because DELETE beside other operations
// is a mistake that leaves the policy in effect for those.
func mutationsSchema() []SchemaRule {
	return []SchemaRule{{
		At: "spec", Field: ".matchConstraints.resourceRules", Type: field.ErrorTypeInvalid, Message: messageDelete,
		Rule: `!has(self.mutations) || size(self.mutations) == 0 || (has(self.validations) && size(self.validations) > 0) || ` +
			`(has(self.auditAnnotations) && size(self.auditAnnotations) > 0) || !has(self.matchConstraints) || ` +
			`!has(self.matchConstraints.resourceRules) || !self.matchConstraints.resourceRules.exists(r, 'DELETE' in r.operations)`,
	}}
}

// checkMutations rejects mutations if every rule is only for DELETE.
func checkMutations(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if len(spec.Mutations) == 0 || lacksRules(spec) || slices.ContainsFunc(rulesOf(spec), mayMutate) {
		return nil
	}
	return field.ErrorList{field.Required(at.Child("matchConstraints", "resourceRules"), messageDeleteAlone)}
}

// mayMutate reports whether a rule has an operation other than DELETE. It is also true for
// rules without a known operation, for which there is another error.
func mayMutate(rule admissionregistrationv1.NamedRuleWithOperations) bool {
	deletes := false
	for _, o := range rule.Operations {
		if o == admissionregistrationv1.Delete {
			deletes = true
		} else if isOperation(o) {
			return true
		}
	}
	return !deletes
}

// mutates reports whether objects are changed, by Ostiary or by a backend.
func mutates(spec *v1alpha1.WebhookPolicySpec) bool {
	return spec.Mutates() || (spec.Backend != nil && spec.Backend.Type == v1alpha1.BackendMutating)
}
