package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// exclusion is a field that has no effect in a policy with a backend or a plugin.
type exclusion struct {
	field string
	// why ends the message "remove <field>".
	why   string
	isSet bool
}

func excludedByBackend(spec *v1alpha1.WebhookPolicySpec) []exclusion {
	const oneOr = ", or backend: a policy has one or the other"
	return []exclusion{
		{"mutations", oneOr, len(spec.Mutations) > 0},
		{"validations", oneOr, len(spec.Validations) > 0},
		{"auditAnnotations", oneOr, len(spec.AuditAnnotations) > 0},
		{"bindings", ": only the backend decides; select its requests in matchConstraints", len(spec.Bindings) > 0},
		{"paramKind", ": a backend gets no params", spec.ParamKind != nil},
		{"variables", ": the API server evaluates the matchConditions of a backend, without variables", len(spec.Variables) > 0},
		{"lookups", ": the API server evaluates the matchConditions of a backend, without lookups", len(spec.Lookups) > 0},
		{"podTemplates", ": a backend gets whole objects; name the workloads in matchConstraints", spec.PodTemplates != nil},
		{"plugin", oneOr, spec.Plugin != nil},
		{"exceptions", ": only the backend decides; select its requests in matchConstraints", spec.Exceptions != nil},
	}
}

func excludedByPlugin(spec *v1alpha1.WebhookPolicySpec) []exclusion {
	const oneOr = ", or plugin: a policy has one or the other"
	return []exclusion{
		{"mutations", oneOr, len(spec.Mutations) > 0},
		{"validations", oneOr, len(spec.Validations) > 0},
		{"auditAnnotations", oneOr, len(spec.AuditAnnotations) > 0},
		{"paramKind", ": a plugin gets no params", spec.ParamKind != nil},
		{"lookups", ": a plugin reads no lookups", len(spec.Lookups) > 0},
	}
}

func (e exclusion) message() string { return "remove " + e.field + e.why }

func exclusionsSchema() []SchemaRule {
	var none v1alpha1.WebhookPolicySpec
	return append(exclusionRules("backend", excludedByBackend(&none)), exclusionRules("plugin", excludedByPlugin(&none))...)
}

func exclusionRules(with string, excluded []exclusion) []SchemaRule {
	var out []SchemaRule
	for _, e := range excluded {
		out = append(out, SchemaRule{
			At: "spec", Field: "." + e.field, Type: field.ErrorTypeForbidden, Message: e.message(),
			Rule: "!has(self." + with + ") || !has(self." + e.field + ")",
		})
	}
	return out
}

// checkExclusions rejects fields that have no effect with a backend or a plugin.
func checkExclusions(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	var excluded []exclusion
	if spec.Backend != nil {
		excluded = append(excluded, excludedByBackend(spec)...)
	}
	if spec.Plugin != nil {
		excluded = append(excluded, excludedByPlugin(spec)...)
	}
	var errs field.ErrorList
	for _, e := range excluded {
		if e.isSet {
			errs = append(errs, field.Forbidden(at.Child(e.field), e.message()))
		}
	}
	return errs
}
