package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const messageNothingToDo = "add at least one entry to mutations, validations or auditAnnotations, or a plugin or a backend"

func specSchema() []SchemaRule {
	return []SchemaRule{{
		At: "spec", Type: field.ErrorTypeRequired, Message: messageNothingToDo,
		Rule: `has(self.plugin) || has(self.backend) || (has(self.mutations) && size(self.mutations) > 0) || ` +
			`(has(self.validations) && size(self.validations) > 0) || (has(self.auditAnnotations) && size(self.auditAnnotations) > 0)`,
	}}
}

// checkSpec rejects a policy that decides nothing.
func checkSpec(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if spec.Mutates() || spec.Validates() || spec.Backend != nil || spec.Plugin != nil {
		return nil
	}
	return field.ErrorList{field.Required(at, messageNothingToDo)}
}
