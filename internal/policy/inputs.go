package policy

import (
	"regexp"
	"strings"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// inputs says which costly parts of a request an expression can read.
type inputs struct {
	oldObject, namespace, options, managedFields bool

	copies, values bool // mutations copy the object; plugins create Go values
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
	// wholeRequest finds uses of request other than the selection of a field. As a value
	// without a static type, it also has fields with computed names.
	wholeRequest = regexp.MustCompile(`\brequest\b[^.\w]|\brequest$`)
	// holders finds the objects and their metadata.
	holders = regexp.MustCompile(`\b(object|oldObject|metadata)\b`)
	// selection matches the selection of a single field after one of them, but not the
	// call of a method. Any other use can read every field.
	selection = regexp.MustCompile(`^\s*\.\s*\??\s*[A-Za-z_]\w*\s*([^\s(\w]|$)`)
)

// readsOf searches the text of every expression for the names of inputs. A name in a
// comment or a string counts too, which is safe.
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
		// An object selector matches the old object too.
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

// readsManagedFields reports whether an expression can read metadata.managedFields: it
// names them, or it uses an object or its metadata other than to select another field.
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
