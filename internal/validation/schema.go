package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SchemaRule is a rule of the CustomResourceDefinition.
type SchemaRule struct {
	// At is the path of the object that the rule is about, such as spec.backend, in the
	// notation of hack/crdlimits.
	At string
	// Field is the part of the object that the error names, such as ".url"; "" is all of it.
	Field string
	// Type is the type of the error.
	Type field.ErrorType
	// Rule is the CEL expression that must be true.
	Rule string
	// Message is the message of the error.
	Message string
}

// SchemaRules returns the rules of the CustomResourceDefinition that Validate repeats,
// except those about fields of Kubernetes types, whose messages are constants.
func SchemaRules() []SchemaRule {
	return slices.Concat(
		specSchema(), exclusionsSchema(), matchConstraintsSchema(), mutationsSchema(),
		podTemplatesSchema(), backendSchema(),
	)
}
