package policy

import (
	"regexp"
	"strings"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// inputs are the parts of a request that cost something to provide and that
// some expression may read.
type inputs struct {
	oldObject, namespace, options, managedFields bool

	copies, values bool // they copy the object, or make Go values of it
}

func (in inputs) with(other inputs) inputs {
	return inputs{
		oldObject:     in.oldObject || other.oldObject,
		namespace:     in.namespace || other.namespace,
		options:       in.options || other.options,
		managedFields: in.managedFields || other.managedFields,
		copies:        in.copies || other.copies,
		values:        in.values || other.values,
	}
}

var (
	// wholeRequest finds the request used other than by selecting a field of it.
	// As a value without a static type it gives up its fields by computed names too.
	wholeRequest = regexp.MustCompile(`\brequest\b[^.\w]|\brequest$`)
	// holders finds the objects, and the metadata in them.
	holders = regexp.MustCompile(`\b(object|oldObject|metadata)\b`)
	// selection is what follows one of which a single field is selected, and
	// not a method called. What is not of this form may read every field.
	selection = regexp.MustCompile(`^\s*\.\s*\??\s*[A-Za-z_]\w*\s*([^\s(\w]|$)`)
)

// readsOf looks for the names of inputs in the text of every expression. A
// name in a comment or a string counts too, which costs a little and is safe.
func readsOf(spec *v1alpha1.WebhookPolicySpec) inputs {
	var in inputs
	for _, c := range spec.MatchConditions {
		in = in.with(readsOfExpression(c.Expression))
	}
	for _, v := range spec.Variables {
		in = in.with(readsOfExpression(v.Expression))
	}
	for _, v := range spec.Validations {
		in = in.with(readsOfExpression(v.Expression)).with(readsOfExpression(v.MessageExpression))
	}
	for _, a := range spec.AuditAnnotations {
		in = in.with(readsOfExpression(a.ValueExpression))
	}
	for _, m := range spec.Mutations {
		if m.ApplyConfiguration != nil {
			in = in.with(readsOfExpression(m.ApplyConfiguration.Expression))
		}
		if m.JSONPatch != nil {
			in = in.with(readsOfExpression(m.JSONPatch.Expression))
		}
	}
	for _, b := range spec.Bindings {
		// An object selector matches the old object as well as the new.
		in.oldObject = in.oldObject || b.MatchResources != nil
	}
	return in
}

func readsOfExpression(expression string) inputs {
	return inputs{
		oldObject:     strings.Contains(expression, "oldObject"),
		namespace:     strings.Contains(expression, "namespaceObject"),
		options:       strings.Contains(expression, "options") || wholeRequest.MatchString(expression),
		managedFields: readsManagedFields(expression),
	}
}

// readsManagedFields reports whether an expression could see
// metadata.managedFields: it names them, or it does with an object or with its
// metadata anything but select another field.
func readsManagedFields(expression string) bool {
	if strings.Contains(expression, "managedFields") {
		return true
	}
	for _, at := range holders.FindAllStringIndex(expression, -1) {
		if !selection.MatchString(expression[at[1]:]) {
			return true
		}
	}
	return false
}
