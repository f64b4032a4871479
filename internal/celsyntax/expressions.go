// Package celsyntax reads the expressions of a policy before they have types: what they can read of a request,
// whether they can be evaluated on stored objects, and how costly it is to compile them.
//
// It reads syntax trees and not text. Where the path of a value is computed, it includes more than an expression
// reads, and never less.
package celsyntax

import (
	"iter"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Names in the expressions of lookups.
const (
	StoredVarName  = "stored"
	LookupsVarName = "lookups"
)

// Trees are the syntax trees of expressions by their text. An expression that cannot be parsed has none.
type Trees map[string]*cel.Ast

// Expressions yields every expression of a policy over a request that is not empty, with its field.
func Expressions(spec *v1alpha1.WebhookPolicySpec) iter.Seq2[*field.Path, string] {
	return func(yield func(*field.Path, string) bool) {
		at := field.NewPath("spec")
		more := true
		give := func(path *field.Path, text string) {
			more = more && (text == "" || yield(path, text))
		}
		for i, v := range spec.Variables {
			give(at.Child("variables").Index(i).Child("expression"), v.Expression)
		}
		for i, l := range spec.Lookups {
			give(at.Child("lookups").Index(i).Child("requestKeys"), l.RequestKeys)
		}
		for i, m := range spec.MatchConditions {
			give(at.Child("matchConditions").Index(i).Child("expression"), m.Expression)
		}
		for i, v := range spec.Validations {
			give(at.Child("validations").Index(i).Child("expression"), v.Expression)
			give(at.Child("validations").Index(i).Child("messageExpression"), v.MessageExpression)
		}
		for i, a := range spec.AuditAnnotations {
			give(at.Child("auditAnnotations").Index(i).Child("valueExpression"), a.ValueExpression)
		}
		for i, m := range spec.Mutations {
			if m.ApplyConfiguration != nil {
				give(at.Child("mutations").Index(i).Child("applyConfiguration", "expression"), m.ApplyConfiguration.Expression)
			}
			if m.JSONPatch != nil {
				give(at.Child("mutations").Index(i).Child("jsonPatch", "expression"), m.JSONPatch.Expression)
			}
		}
	}
}

// StoredExpressions yields every expression of a policy over stored objects, with its field.
func StoredExpressions(spec *v1alpha1.WebhookPolicySpec) iter.Seq2[*field.Path, string] {
	return func(yield func(*field.Path, string) bool) {
		for i, l := range spec.Lookups {
			at := field.NewPath("spec", "lookups").Index(i)
			if !yield(at.Child("storedKeys"), l.StoredKeys) || l.Value != "" && !yield(at.Child("value"), l.Value) {
				return
			}
		}
	}
}

// selectedField returns the operand and the name of a selection of a field: x.name, x["name"], x.?name, x[?"name"] or
// has(x.name).
func selectedField(e ast.Expr) (operand ast.Expr, name string, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), true
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if key := call.Args()[1]; key.Kind() == ast.LiteralKind {
				name, ok := key.AsLiteral().(types.String)
				return call.Args()[0], string(name), ok
			}
		}
	}
	return nil, "", false
}
