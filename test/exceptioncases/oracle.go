package exceptioncases

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Decided is what an exception can let pass: a validation of a policy, or its mutations, at a time.
type Decided struct {
	Policy string
	// Longest is spec.exceptions.maxDurationSeconds; 0 without one.
	Longest int64
	// Validation is a name; "" is a validation without one, or the mutations.
	Validation string
	Now        time.Time
}

// Expression returns a CEL expression that is true if the exception lets pass what is decided. It reads request, object and oldObject
// as the native admission policies of Kubernetes have them, and never fails. It follows the words of the API, without the code that
// evaluates exceptions, so that both can be compared.
func (d Decided) Expression(x v1alpha1.Exception) string {
	spec := x.GetSpec()
	if spec.PolicyName != d.Policy || !d.isNamed(spec) || !d.isTimely(x) {
		return "false"
	}
	var matches []string
	for i := range spec.Match {
		matches = append(matches, matchExpression(&spec.Match[i]))
	}
	return fmt.Sprintf("(request.?namespace.orValue('') == %q && [request.operation == 'DELETE' ? oldObject : object].exists(o, (%s) && %s))",
		x.GetNamespace(), strings.Join(matches, " || "), conditions()[spec.Condition])
}

func (d Decided) isNamed(spec *v1alpha1.WebhookPolicyExceptionSpec) bool {
	return slices.Contains(spec.Validations, "*") || d.Validation != "" && slices.Contains(spec.Validations, d.Validation)
}

func (d Decided) isTimely(x v1alpha1.Exception) bool {
	end := x.GetSpec().ExpirationTime
	if end == nil {
		return d.Longest == 0
	}
	lasts := end.Sub(x.GetCreationTimestamp().Time)
	return end.After(d.Now) && (d.Longest == 0 || lasts <= time.Duration(d.Longest)*time.Second)
}

// matchExpression compares the resource, then the name, which is that of the object while it is created, and then the labels of o.
func matchExpression(m *v1alpha1.ExceptionMatch) string {
	all := []string{
		fmt.Sprintf("request.resource.group == %q", m.Group),
		"(request.resource.resource + (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource)) in " + list(m.Resources),
	}
	if len(m.Names) > 0 {
		const own = "request.operation == 'CREATE' && request.?subResource.orValue('') == '' && has(o.metadata.name) && o.metadata.name != ''"
		const name = "(" + own + " ? o.metadata.name : request.?name.orValue('') != '' ? request.name : " +
			"request.operation == 'DELETE' ? oldObject.metadata.name : '')"
		var each []string
		for _, pattern := range m.Names {
			each = append(each, fmt.Sprintf("n.matches(%q)", "^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$"))
		}
		all = append(all, fmt.Sprintf("[%s].exists(n, n != '' && (%s))", name, strings.Join(each, " || ")))
	}
	if m.ObjectSelector != nil {
		all = append(all, selectorExpression(m.ObjectSelector))
	}
	return "(" + strings.Join(all, " && ") + ")"
}

func selectorExpression(s *metav1.LabelSelector) string {
	all := []string{"has(o.metadata)"}
	for key, value := range s.MatchLabels {
		all = append(all, fmt.Sprintf("has(o.metadata.labels) && %q in o.metadata.labels && o.metadata.labels[%q] == %q", key, key, value))
	}
	for _, r := range s.MatchExpressions {
		has := fmt.Sprintf("(has(o.metadata.labels) && %q in o.metadata.labels)", r.Key)
		in := fmt.Sprintf("(%s && o.metadata.labels[%q] in %s)", has, r.Key, list(r.Values))
		all = append(all, map[metav1.LabelSelectorOperator]string{
			metav1.LabelSelectorOpExists: has, metav1.LabelSelectorOpDoesNotExist: "!" + has,
			metav1.LabelSelectorOpIn: in, metav1.LabelSelectorOpNotIn: "!" + in,
		}[r.Operator])
	}
	return strings.Join(all, " && ")
}

func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// conditions are conditions of exceptions, with an expression about o that is true where the condition is, and false where it is false
// or fails. In a condition, a deleted object is both object and oldObject.
func conditions() map[string]string {
	const labels = "has(o.metadata) && has(o.metadata.labels)"
	return map[string]string{
		"":                                      "true",
		"true":                                  "true",
		"false":                                 "false",
		"object.metadata.labels.app == 'web'":   "(" + labels + " && has(o.metadata.labels.app) && o.metadata.labels.app == 'web')",
		"object.metadata.labels.app != 'web'":   "(" + labels + " && has(o.metadata.labels.app) && o.metadata.labels.app != 'web')",
		"object.metadata.labels.team == 'shop'": "(" + labels + " && has(o.metadata.labels.team) && o.metadata.labels.team == 'shop')",
		"!('tier' in object.metadata.labels)":   "(" + labels + " && !('tier' in o.metadata.labels))",
		"has(object.metadata.labels)":           "(" + labels + ")",
		"size(object.spec.containers) > 1":      "(has(o.spec) && has(o.spec.containers) && size(o.spec.containers) > 1)",
		"oldObject == null":                     "(oldObject == null)",
		"object.metadata.name.startsWith('m')":  "(has(o.metadata) && has(o.metadata.name) && o.metadata.name.startsWith('m'))",
		"request.namespace == 'shop'":           "false", // it does not compile
	}
}
