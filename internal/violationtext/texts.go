// Package violationtext describes violations of policies without values of objects: it uses the texts of the
// policy, and the kind and the place of an error instead of its text.
package violationtext

import (
	"errors"
	"fmt"
	"strings"

	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Texts are the texts of a policy that describe its violations.
type Texts struct {
	// Validations are those of the policy; an entry is nil for one that does not compile.
	Validations []*validating.ValidationCondition

	conditions []string // expressions
	plugin     v1alpha1.PluginName
}

// New returns the texts of a policy, whose validations have been compiled.
func New(spec *v1alpha1.WebhookPolicySpec, validations []celplugin.CompilationResult) (t Texts) {
	for _, v := range validations {
		condition, _ := v.ExpressionAccessor.(*validating.ValidationCondition)
		t.Validations = append(t.Validations, condition)
	}
	for i := range spec.MatchConditions {
		t.conditions = append(t.conditions, spec.MatchConditions[i].Expression)
	}
	if spec.Plugin != nil {
		t.plugin = spec.Plugin.Name
	}
	return t
}

// Denial describes a false validation, or the denial of a plugin. It is the text that Kubernetes uses without a
// message expression.
func (t *Texts) Denial(index int) string {
	switch {
	case t.plugin != "":
		return t.PluginDenial()
	case index >= len(t.Validations) || t.Validations[index] == nil:
		return "the validation is false"
	}
	v := t.Validations[index]
	if text := strings.TrimSpace(v.Message); text != "" {
		return text
	}
	return "failed expression: " + strings.TrimSpace(v.Expression)
}

// PluginDenial describes a denial of a plugin, whose message can quote objects.
func (t *Texts) PluginDenial() string {
	return fmt.Sprintf("the plugin %s rejects the request", t.plugin)
}

// DecisionError describes the error of a decision: that of a validation, of a match condition or of the whole policy.
func (t *Texts) DecisionError(index int, message string) string {
	return errorKindOf(message) + t.placeOf(message, index)
}

// AnnotationError describes the error of an audit annotation.
func (t *Texts) AnnotationError(index int, message string) string {
	return fmt.Sprintf("%s at spec.auditAnnotations[%d].valueExpression", errorKindOf(message), index)
}

// Error describes an error of an evaluation by its kind and its place in the policy.
func (t *Texts) Error(err error) string {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var out []string
		for _, e := range several.Unwrap() {
			out = append(out, t.Error(e))
		}
		return strings.Join(out, "; ")
	}
	var mutation *MutationError
	if errors.As(err, &mutation) {
		return fmt.Sprintf("%s at spec.mutations[%d]", errorKindOf(mutation.Err.Error()), mutation.Index)
	}
	return errorKindOf(err.Error()) + t.placeOf(err.Error(), noValidation)
}

// MutationError is the error of one mutation.
type MutationError struct {
	Index int
	Err   error
}

// Error implements error.
func (e *MutationError) Error() string { return fmt.Sprintf("spec.mutations[%d]: %s", e.Index, e.Err) }

// Unwrap implements errors.Unwrap.
func (e *MutationError) Unwrap() error { return e.Err }

// noValidation is the index of an error that is of no validation.
const noValidation = -1

// placeOf returns the place of an error: a match condition, or the validation with an index. It is empty if the
// error is of neither.
func (t *Texts) placeOf(message string, index int) string {
	for i, expression := range t.conditions {
		if isErrorOf(expression, message) {
			return fmt.Sprintf(" at spec.matchConditions[%d].expression", i)
		}
	}
	if index >= 0 && index < len(t.Validations) && t.Validations[index] != nil &&
		isErrorOf(t.Validations[index].Expression, message) {
		return fmt.Sprintf(" at spec.validations[%d].expression", index)
	}
	if strings.HasPrefix(message, "failed messageExpression: ") {
		return " at a messageExpression"
	}
	return ""
}
