package celengine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/ostiary/ostiary/internal/celsyntax"
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
		return syntaxHint(expression)
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

// Parts of expressions that are no CEL, but have the syntax of other languages.
var (
	hasOfKey    = regexp.MustCompile(`\bhas\(\s*([\w.]+)\[\s*("[^"]*"|'[^']*')\s*\]\s*\)`)
	allElements = regexp.MustCompile(`([\w.]+)\[\*\]`)
	literal     = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	assignment  = regexp.MustCompile(`[^=!<>]=[^=]`)
)

// syntaxHint returns a hint about an expression that is no CEL.
func syntaxHint(expression string) string {
	if found := hasOfKey.FindStringSubmatch(expression); found != nil {
		return fmt.Sprintf("has() is for fields: write %s in %s", found[2], found[1])
	}
	if found := allElements.FindStringSubmatch(expression); found != nil {
		return fmt.Sprintf("a list has no [*]: write %s.all(x, ...) or %s.exists(x, ...)", found[1], found[1])
	}
	if assignment.MatchString(literal.ReplaceAllString(expression, "")) {
		return "a comparison is written =="
	}
	return ""
}

// operatorHint returns a hint about operators: a key with a slash that is written as fields,
// and an order of quantities.
func operatorHint(call ast.CallExpr) string {
	args := call.Args()
	if len(args) != 2 {
		return ""
	}
	switch call.FunctionName() {
	case operators.Divide:
		if path, key := keyPath(args[0]); key != "" {
			return fmt.Sprintf("a key with a dot or a slash needs brackets: write %s[%q]", path, key+"/"+lastName(args[1]))
		}
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if slices.ContainsFunc(args, isQuantity) {
			return "quantities have no order of operators: write quantity(a).isLessThan(quantity(b)), isGreaterThan or compareTo"
		}
	}
	return ""
}

// keyPath returns the path of a map of labels or annotations, and the key of which a path
// consists after it.
func keyPath(e ast.Expr) (path, key string) {
	if e.Kind() != ast.SelectKind {
		return "", ""
	}
	s := e.AsSelect()
	if at := s.Operand(); at.Kind() == ast.SelectKind && slices.Contains([]string{"labels", "annotations", "matchLabels", "nodeSelector"}, at.AsSelect().FieldName()) {
		return exprPath(at), s.FieldName()
	}
	if path, key = keyPath(s.Operand()); key != "" {
		return path, key + "." + s.FieldName()
	}
	return "", ""
}

// exprPath writes an expression of fields.
func exprPath(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.SelectKind:
		return exprPath(e.AsSelect().Operand()) + "." + e.AsSelect().FieldName()
	}
	return "..."
}

func lastName(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind, ast.SelectKind:
		return exprPath(e)
	}
	return "..."
}

func isQuantity(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "quantity"
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
	if operand.Kind() == ast.IdentKind && operand.AsIdent() == celsyntax.LookupsVarName {
		return lookupHint(name, known)
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

func lookupHint(name string, known KnownVariables) string {
	if known.lookups[name] != nil {
		return ""
	}
	if similar := nearest.Name(name, maps.Keys(known.lookups)); similar != "" {
		return fmt.Sprintf("there is no lookup %s, did you mean %s?", name, similar)
	}
	return fmt.Sprintf("there is no lookup %s: define it in spec.lookups", name)
}

// callHint returns a hint about functions. Only mutations have those of JSON patches.
func callHint(call ast.CallExpr, env *cel.Env, decls celplugin.OptionalVariableDeclarations) string {
	if hint := operatorHint(call); hint != "" {
		return hint
	}
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
