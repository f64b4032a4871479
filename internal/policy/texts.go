package policy

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// texts holds the texts of a policy that describe its violations without values of objects.
type texts struct {
	validations []*validating.ValidationCondition
	conditions  []string // expressions
	plugin      v1alpha1.PluginName
}

func newTexts(spec *v1alpha1.WebhookPolicySpec, validations []celplugin.CompilationResult) (t texts) {
	for _, v := range validations {
		condition, _ := v.ExpressionAccessor.(*validating.ValidationCondition)
		t.validations = append(t.validations, condition)
	}
	for i := range spec.MatchConditions {
		t.conditions = append(t.conditions, spec.MatchConditions[i].Expression)
	}
	if spec.Plugin != nil {
		t.plugin = spec.Plugin.Name
	}
	return t
}

// reportsValues reports whether violations of a request may hold values of the objects that the policy reads.
func (c *Compiled) reportsValues(on *subject, host Environment) bool {
	permitted := func(resource metav1.GroupVersionResource, subresource string) bool {
		return host.ReportsValues(schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, subresource)
	}
	if host.ReportsValues == nil || !permitted(on.raw.Resource, on.raw.SubResource) {
		return false
	}
	if _, resource, subresource := requested(on.raw); !permitted(resource, subresource) {
		return false
	}
	core := func(resource corev1.ResourceName) bool {
		return host.ReportsValues(schema.GroupResource{Resource: string(resource)}, "")
	}
	return (on.template == "" || core(corev1.ResourcePods)) && (!c.reads.namespace || core("namespaces")) && c.reportsParams(host)
}

// reportsParams reports whether violations may hold values of params. It returns false if their resource is not known.
func (c *Compiled) reportsParams(host Environment) bool {
	if c.paramKind == nil {
		return true
	}
	if host.Kinds == nil {
		return false
	}
	resources, err := host.Kinds.ResourcesOf(schema.FromAPIVersionAndKind(c.paramKind.APIVersion, c.paramKind.Kind))
	if err != nil || len(resources) == 0 {
		return false
	}
	for _, resource := range resources {
		if !host.ReportsValues(resource.GroupResource(), "") {
			return false
		}
	}
	return true
}

// denialText describes a false validation, with the message of its decision if values are permitted. Otherwise it is the
// text that Kubernetes uses without a message expression.
func (c *Compiled) denialText(on *subject, index int, message string, values bool) string {
	switch {
	case values:
		return message
	case on.unreadable != nil:
		return "the object cannot be read at " + on.unreadable.What
	case c.texts.plugin != "":
		return c.pluginText(message, values)
	case index >= len(c.texts.validations) || c.texts.validations[index] == nil:
		return "the validation is false"
	}
	v := c.texts.validations[index]
	if text := strings.TrimSpace(v.Message); text != "" {
		return text
	}
	return "failed expression: " + strings.TrimSpace(v.Expression)
}

// pluginText describes a denial of a plugin, whose message can quote objects.
func (c *Compiled) pluginText(message string, values bool) string {
	if values {
		return message
	}
	return fmt.Sprintf("the plugin %s rejects the request", c.texts.plugin)
}

// decisionErrorText describes the error of a decision: that of a validation, of a match condition or of the whole policy.
func (c *Compiled) decisionErrorText(index int, message string, values bool) string {
	if values {
		return message
	}
	return errorKindOf(message) + c.texts.placeOf(message, index)
}

// annotationErrorText describes the error of an audit annotation.
func (c *Compiled) annotationErrorText(index int, message string, values bool) string {
	if values {
		return message
	}
	return fmt.Sprintf("%s at spec.auditAnnotations[%d].valueExpression", errorKindOf(message), index)
}

// errorText describes an error of an evaluation: by its kind and its place in the policy, unless values are permitted.
func (c *Compiled) errorText(err error, values bool) string {
	if values {
		return err.Error()
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var out []string
		for _, e := range several.Unwrap() {
			out = append(out, c.errorText(e, values))
		}
		return strings.Join(out, "; ")
	}
	var mutation *mutationError
	if errors.As(err, &mutation) {
		return fmt.Sprintf("%s at spec.mutations[%d]", errorKindOf(mutation.err.Error()), mutation.index)
	}
	return errorKindOf(err.Error()) + c.texts.placeOf(err.Error(), noValidation)
}

// noValidation is the index of an error that is of no validation.
const noValidation = -1

// placeOf returns the place of an error: a match condition, or the validation with an index. It is empty if the error is of
// neither.
func (t *texts) placeOf(message string, index int) string {
	for i, expression := range t.conditions {
		if isErrorOf(expression, message) {
			return fmt.Sprintf(" at spec.matchConditions[%d].expression", i)
		}
	}
	if index >= 0 && index < len(t.validations) && t.validations[index] != nil && isErrorOf(t.validations[index].Expression, message) {
		return fmt.Sprintf(" at spec.validations[%d].expression", index)
	}
	if strings.HasPrefix(message, "failed messageExpression: ") {
		return " at a messageExpression"
	}
	return ""
}
