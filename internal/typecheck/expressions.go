package typecheck

import (
	"regexp"
	"slices"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// expression is one expression of a policy.
type expression struct {
	field    string
	text     string
	variable string      // its name, if it is one
	what     string      // in messages
	results  []*cel.Type // nil: any
	patches  bool        // it returns operations of a JSON patch
	isValue  bool        // of a stored object
}

// expressionsOf returns the expressions of a policy. Variables come first, in the order
// in which they may read each other.
func expressionsOf(spec *v1alpha1.WebhookPolicySpec) []expression {
	at := field.NewPath("spec")
	isBool := []*cel.Type{cel.BoolType}
	var out []expression
	for i, v := range spec.Variables {
		out = append(out, expression{field: at.Child("variables").Index(i).Child("expression").String(), text: v.Expression, variable: v.Name})
	}
	for i, l := range spec.Lookups {
		out = append(out, expression{
			field: at.Child("lookups").Index(i).Child("requestKeys").String(), text: l.RequestKeys,
			what: "the keys of a request", results: listsOfKeys(),
		})
	}
	for i, c := range spec.MatchConditions {
		out = append(out, expression{field: at.Child("matchConditions").Index(i).Child("expression").String(), text: c.Expression, what: "a match condition", results: isBool})
	}
	for i, v := range spec.Validations {
		here := at.Child("validations").Index(i)
		out = append(out, expression{field: here.Child("expression").String(), text: v.Expression, what: "a validation", results: isBool})
		if v.MessageExpression != "" {
			out = append(out, expression{field: here.Child("messageExpression").String(), text: v.MessageExpression, what: "a message", results: []*cel.Type{cel.StringType}})
		}
	}
	for i, a := range spec.AuditAnnotations {
		out = append(out, expression{field: at.Child("auditAnnotations").Index(i).Child("valueExpression").String(), text: a.ValueExpression, what: "an audit annotation", results: []*cel.Type{cel.StringType, cel.NullType}})
	}
	for i := range spec.Mutations {
		out = append(out, mutationOf(&spec.Mutations[i], at.Child("mutations").Index(i))...)
	}
	return out
}

// storedExpressionsOf returns the expressions over stored objects.
func storedExpressionsOf(spec *v1alpha1.WebhookPolicySpec) (out []expression) {
	for i := range spec.Lookups {
		out = append(out, storedExpressionsOfLookup(&spec.Lookups[i], i)...)
	}
	return out
}

func storedExpressionsOfLookup(l *v1alpha1.Lookup, index int) []expression {
	at := field.NewPath("spec", "lookups").Index(index)
	out := []expression{{
		field: at.Child("storedKeys").String(), text: l.StoredKeys, what: "the keys of an object", results: listsOfKeys(),
	}}
	if l.Value != "" {
		out = append(out, expression{field: at.Child("value").String(), text: l.Value, isValue: true})
	}
	return out
}

func listsOfKeys() []*cel.Type {
	return []*cel.Type{cel.ListType(cel.StringType), cel.ListType(cel.DynType)}
}

func mutationOf(m *admissionregistrationv1.Mutation, at *field.Path) []expression {
	switch {
	case m.ApplyConfiguration != nil:
		return []expression{{field: at.Child("applyConfiguration", "expression").String(), text: m.ApplyConfiguration.Expression}}
	case m.JSONPatch != nil:
		return []expression{{field: at.Child("jsonPatch", "expression").String(), text: m.JSONPatch.Expression, patches: true}}
	}
	return nil
}

// returns reports whether a type is one that the expression may have. A value without a
// static type has to be seen.
func (e *expression) returns(t *cel.Type) bool {
	return len(e.results) == 0 || isDynamic(t) || slices.ContainsFunc(e.results, t.IsExactType)
}

func isDynamic(t *cel.Type) bool {
	switch t.Kind() {
	case cel.DynKind, cel.AnyKind, cel.TypeParamKind:
		return true
	}
	return false
}

// kindDependent matches expressions that treat kinds differently: they read the kind or the
// resource, or test whether a field exists.
var kindDependent = regexp.MustCompile(`\b(object|oldObject)\.kind\b|\brequest\.(requestKind|kind|requestResource|resource|requestSubResource|subResource)\b|\bhas\s*\(|\.\?|\[\?|\bin\b`)

// discriminates reports whether an expression treats kinds differently.
func discriminates(expressions []expression) bool {
	return slices.ContainsFunc(expressions, func(e expression) bool { return kindDependent.MatchString(e.text) })
}
