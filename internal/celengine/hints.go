package celengine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/ostiary/ostiary/internal/nearest"
)

// Hint explains how to correct the first unknown name in an expression; empty if there is none. The names are those
// of all variables of the policy, also of those that are not known yet.
func (c *Compiler) Hint(
	expression string,
	decls celplugin.OptionalVariableDeclarations,
	known KnownVariables,
	names []string,
) (hint string) {
	env := c.SyntaxEnv()
	parsed, issues := env.Parse(expression)
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
			hint = selectHint(e.AsSelect(), known, names)
		case ast.CallKind:
			hint = callHint(e.AsCall(), env, decls)
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
func selectHint(s ast.SelectExpr, known KnownVariables, names []string) string {
	name, operand := s.FieldName(), s.Operand()
	if operand.Kind() == ast.IdentKind && operand.AsIdent() == celplugin.VariableVarName {
		return variableHint(name, known, names)
	}
	object := declaredType(operand)
	if object == nil || !object.IsObject() || object.Fields[name] != nil {
		return ""
	}
	if similar := nearest.Name(name, maps.Keys(object.Fields)); similar != "" {
		return fmt.Sprintf("there is no field %s, did you mean %s?", name, similar)
	}
	fields := strings.Join(slices.Sorted(maps.Keys(object.Fields)), ", ")
	return fmt.Sprintf("there is no field %s: the fields are %s", name, fields)
}

// declaredType returns the type of request or namespaceObject, or of a field in them.
func declaredType(e ast.Expr) *apiservercel.DeclType {
	switch e.Kind() {
	case ast.IdentKind:
		switch e.AsIdent() {
		case celplugin.RequestVarName:
			return celplugin.BuildRequestType()
		case celplugin.NamespaceVarName:
			return celplugin.BuildNamespaceType()
		}
	case ast.SelectKind:
		object, name := declaredType(e.AsSelect().Operand()), e.AsSelect().FieldName()
		if object != nil && object.Fields[name] != nil {
			return object.Fields[name].Type
		}
	}
	return nil
}

func variableHint(name string, known KnownVariables, names []string) string {
	if known.fields[name] != nil {
		return ""
	}
	if i := slices.Index(names, name); i >= 0 {
		return fmt.Sprintf("variables can use only variables defined before them, and %s is spec.variables[%d]: "+
			"define it before this one", name, i)
	}
	if similar := nearest.Name(name, maps.Keys(known.fields)); similar != "" {
		return fmt.Sprintf("there is no variable %s, did you mean %s?", name, similar)
	}
	return fmt.Sprintf("there is no variable %s: define it in spec.variables", name)
}

// callHint returns a hint about functions. Only mutations have those of JSON patches.
func callHint(call ast.CallExpr, env *cel.Env, decls celplugin.OptionalVariableDeclarations) string {
	name := call.FunctionName()
	ofPatch := decls.HasPatchTypes && call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind
	if env.HasFunction(name) || ofPatch {
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
