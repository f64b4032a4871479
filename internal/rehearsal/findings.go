package rehearsal

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
)

// maxResources is the number of resources that a warning names.
const maxResources = 3

// finding is an error of one expression, and the requests that have it.
type finding struct {
	field, text, hint string
	operations        []string
	resources         []string
}

// findings merge equal errors of several requests.
type findings struct {
	errors []finding
	others []advice.Warning
}

// add adds an error. The hint is computed for the first error of a field, which is the one that
// becomes a warning.
func (f *findings) add(t *target, r *request, field, text string, hint func() string) {
	i := slices.IndexFunc(f.errors, func(e finding) bool { return e.field == field && e.text == text })
	if i < 0 {
		i = len(f.errors)
		found := finding{field: field, text: text}
		if !slices.ContainsFunc(f.errors, func(e finding) bool { return e.field == field }) {
			found.hint = hint()
		}
		f.errors = append(f.errors, found)
	}
	e := &f.errors[i]
	if o := string(r.Operation); !slices.Contains(e.operations, o) {
		e.operations = append(e.operations, o)
	}
	if name := t.name(); !slices.Contains(e.resources, name) {
		e.resources = append(e.resources, name)
	}
}

func (f *findings) addText(field, text string) {
	w := advice.Warning{Field: field, Text: text}
	if !slices.Contains(f.others, w) {
		f.others = append(f.others, w)
	}
}

// warnings returns one warning for each expression, about its first error: a correction often
// corrects the others.
func (f *findings) warnings(spec *v1alpha1.WebhookPolicySpec) (out []advice.Warning) {
	seen := map[string]bool{}
	for _, e := range f.errors {
		if seen[e.field] {
			continue
		}
		seen[e.field] = true
		effect := ""
		switch {
		case strings.HasSuffix(e.field, messageExpression):
			effect = ", and the denial then has another message"
		case spec.EffectiveFailurePolicy() == admissionregistrationv1.Ignore:
			effect = ", and with failurePolicy Ignore the request then passes"
		case ratchets(spec, e.field) && slices.Contains(e.operations, string(admissionv1.Update)):
			effect = ", and ratchet does not let updates of old objects pass then"
		}
		text := fmt.Sprintf("%s of %s can fail with %q%s", strings.Join(e.operations, " and "),
			abbreviate(e.resources), e.text, effect)
		if e.hint != "" {
			text += ": " + e.hint
		}
		out = append(out, advice.Warning{Field: e.field, Text: text, Kind: advice.FailingRequest})
	}
	return append(out, f.others...)
}

// ratchets reports whether a field is the expression of a validation that ratchets.
func ratchets(spec *v1alpha1.WebhookPolicySpec, field string) bool {
	for i := range spec.Validations {
		if field == fmt.Sprintf("spec.validations[%d].expression", i) {
			return spec.Ratchets(i)
		}
	}
	return false
}

// abbreviate returns the first resources.
func abbreviate(resources []string) string {
	names := strings.Join(resources[:min(len(resources), maxResources)], ", ")
	if more := len(resources) - maxResources; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

// isNull reports whether an input is null for an operation.
func isNull(input string, o admissionv1.Operation) bool {
	switch input {
	case "object":
		return o == admissionv1.Delete
	case "oldObject":
		return o == admissionv1.Create || o == admissionv1.Connect
	}
	return false
}

func terminated() *metav1.Time { return &metav1.Time{Time: time.Unix(1_000_000_000, 0)} }

// messageExpression ends the path of an expression whose error changes only the message.
const messageExpression = ".messageExpression"

// IsRefusal reports whether a warning says that ordinary objects are refused, or pass unchecked
// with failurePolicy Ignore: because an expression fails, or because a validation denies
// everything.
func IsRefusal(w advice.Warning) bool {
	fails := w.Kind == advice.FailingRequest && !strings.HasSuffix(w.Field, messageExpression)
	return fails || w.Kind == advice.DeniesAll
}

// Beside returns the warnings of a rehearsal without those about errors of expressions of which the
// check of types has found the cause.
func Beside(types, rehearsed []advice.Warning) (out []advice.Warning) {
	for _, w := range rehearsed {
		known := slices.ContainsFunc(types, func(t advice.Warning) bool { return t.Field == w.Field })
		if !known || w.Kind != advice.FailingRequest {
			out = append(out, w)
		}
	}
	return out
}
