package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/ostiary/ostiary/internal/nearest"
)

// hinted returns the errors with hints before the messages of the compiler. Responses to
// requests have no hints, like those of the API server.
func (b *builder) hinted() field.ErrorList {
	out := slices.Clone(b.errs)
	for i, hint := range b.hints {
		found := *out[i]
		found.Detail = hint + ": " + found.Detail
		out[i] = &found
	}
	return out
}

// hint explains how to correct the first unknown name in an expression; empty if there is
// none.
func (b *builder) hint(expression string, decls celplugin.OptionalVariableDeclarations) (hint string) {
	parsed, issues := b.compiler.env.Parse(expression)
	if issues.Err() != nil {
		return ""
	}
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if hint != "" {
			return
		}
		switch e.Kind() {
		case ast.IdentKind:
			hint = identHint(e.AsIdent(), decls)
		case ast.SelectKind:
			hint = b.selectHint(e.AsSelect())
		case ast.CallKind:
			hint = callHint(e.AsCall(), b.compiler.env, decls)
		case ast.StructKind:
			hint = structHint(e.AsStruct())
		}
	}))
	return hint
}

func identHint(name string, decls celplugin.OptionalVariableDeclarations) string {
	switch {
	case name == celplugin.ParamsVarName && !decls.HasParams:
		return "params needs spec.paramKind, and a binding with paramRef: add both"
	case name == celplugin.AuthorizerVarName && !decls.HasAuthorizer:
		return "a message cannot use authorizer: use it in a variable, or in the validation"
	}
	return ""
}

// selectHint returns a hint about variables and the fields of request and
// namespaceObject. The fields of other objects are not known here.
func (b *builder) selectHint(s ast.SelectExpr) string {
	name, operand := s.FieldName(), s.Operand()
	if operand.Kind() == ast.IdentKind && operand.AsIdent() == celplugin.VariableVarName {
		return b.variableHint(name)
	}
	of := declared(operand)
	if of == nil || !of.IsObject() || of.Fields[name] != nil {
		return ""
	}
	if similar := nearest.Name(name, maps.Keys(of.Fields)); similar != "" {
		return fmt.Sprintf("there is no field %s, did you mean %s?", name, similar)
	}
	return fmt.Sprintf("there is no field %s: the fields are %s", name, strings.Join(slices.Sorted(maps.Keys(of.Fields)), ", "))
}

// declared returns the type of request or namespaceObject, or of a field in them.
func declared(e ast.Expr) *apiservercel.DeclType {
	switch e.Kind() {
	case ast.IdentKind:
		switch e.AsIdent() {
		case celplugin.RequestVarName:
			return celplugin.BuildRequestType()
		case celplugin.NamespaceVarName:
			return celplugin.BuildNamespaceType()
		}
	case ast.SelectKind:
		if of := declared(e.AsSelect().Operand()); of != nil && of.Fields[e.AsSelect().FieldName()] != nil {
			return of.Fields[e.AsSelect().FieldName()].Type
		}
	}
	return nil
}

func (b *builder) variableHint(name string) string {
	if b.known.fields[name] != nil {
		return ""
	}
	for i, v := range b.policy.Spec.Variables {
		if v.Name == name {
			return fmt.Sprintf("variables can use only variables defined before them, and %s is spec.variables[%d]: define it before this one", name, i)
		}
	}
	if similar := nearest.Name(name, maps.Keys(b.known.fields)); similar != "" {
		return fmt.Sprintf("there is no variable %s, did you mean %s?", name, similar)
	}
	return fmt.Sprintf("there is no variable %s: define it in spec.variables", name)
}

// callHint returns a hint about functions. Only mutations have those of JSON patches.
func callHint(call ast.CallExpr, env *cel.Env, decls celplugin.OptionalVariableDeclarations) string {
	name := call.FunctionName()
	if env.HasFunction(name) || (call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind) && decls.HasPatchTypes {
		return ""
	}
	names := maps.Keys(env.Functions())
	if similar := nearest.Name(name, names); similar != "" {
		return fmt.Sprintf("there is no function %s, did you mean %s?", name, similar)
	}
	return ""
}

func structHint(s ast.StructExpr) string {
	if s.TypeName() != mutation.JSONPatchTypeName {
		return ""
	}
	fields := []string{"op", "path", "from", "value"}
	for _, f := range s.Fields() {
		if name := f.AsStructField().Name(); !slices.Contains(fields, name) {
			return fmt.Sprintf("JSONPatch has no field %s: its fields are op, path, from, value", name)
		}
	}
	return ""
}
