package typecheck

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

// dependent finds texts that may depend on the version of Kubernetes.
var dependent = regexp.MustCompile("\\.\\s*(or|orValue|includes)\\s*\\(|`")

// engineDependent finds those whose warnings depend on the engine of the cluster: or and
// orValue have the same ones for every engine.
var engineDependent = regexp.MustCompile("\\.\\s*includes\\s*\\(|`")

// identifier is a field that needs no quotation.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// maxShown bounds what a warning shows of an expression, in bytes.
const maxShown = 60

// Versions returns the expressions of a policy whose result depends on the version of
// Kubernetes. The engine is that of the cluster. The policy must compile.
func (c *Checker) Versions(p *v1alpha1.WebhookPolicy, engine policy.Engine) []advice.Warning {
	expressions := append(storedExpressionsOf(&p.Spec), expressionsOf(&p.Spec)...)
	if !slices.ContainsFunc(expressions, func(e expression) bool { return dependent.MatchString(e.text) }) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { *c.types = resolver{} }()
	*c.types = resolver{object: node{name: objectType}, params: node{name: paramsType}, variables: map[string]*cel.Type{}}
	var out []advice.Warning
	for i := range expressions {
		e := &expressions[i]
		checked, issues := c.env.Compile(e.text)
		if issues.Err() != nil {
			checked, _ = c.env.Parse(e.text) // it has no types
		}
		if e.variable != "" {
			c.types.variables[e.variable] = cel.DynType
			if checked.IsChecked() {
				c.types.variables[e.variable] = checked.OutputType()
			}
		}
		for _, text := range versionsOf(checked.NativeRep(), engine) {
			out = append(out, advice.Warning{Field: e.field, Text: text})
		}
	}
	return out
}

// DependsOnEngine reports whether Versions may return other warnings for another engine.
func DependsOnEngine(p *v1alpha1.WebhookPolicy) bool {
	expressions := append(storedExpressionsOf(&p.Spec), expressionsOf(&p.Spec)...)
	return slices.ContainsFunc(expressions, func(e expression) bool { return engineDependent.MatchString(e.text) })
}

// versionsOf returns what depends on the version in one expression, each once.
func versionsOf(a *ast.AST, engine policy.Engine) []string {
	var out []string
	add := func(text string) {
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.CallKind && e.AsCall().IsMemberFunction():
			add(receiverText(a, e.AsCall(), engine))
		case e.Kind() == ast.SelectKind && engine < policy.LatestEngine && !identifier.MatchString(e.AsSelect().FieldName()):
			name := truncate.String(e.AsSelect().FieldName(), maxShown)
			add(fmt.Sprintf("Kubernetes 1.36 and before cannot read the name %#q in backticks, and 1.37 can: use [%q]", name, name))
		}
	}))
	return out
}

func receiverText(a *ast.AST, call ast.CallExpr, engine policy.Engine) string {
	switch name := call.FunctionName(); name {
	case "or", "orValue":
		if isOptional(a, call.Target()) {
			return ""
		}
		return fmt.Sprintf("%s() of a value that is not optional is this value up to Kubernetes 1.36, and an error from 1.37 on: %s", name, optionalInstead(a, call, name))
	case "includes":
		if engine < policy.LatestEngine {
			return "Kubernetes 1.36 and before have no function includes(), and 1.37 has: use the operator in"
		}
	}
	return ""
}

// isOptional reports whether a value is optional: by its type, or since a part of it is
// optional. The type of an index of an unknown value is unknown.
func isOptional(a *ast.AST, e ast.Expr) bool {
	if t := a.GetType(e.ID()); t.Kind() == cel.OpaqueKind && t.TypeName() == "optional_type" {
		return true
	}
	switch e.Kind() {
	case ast.SelectKind:
		return isOptional(a, e.AsSelect().Operand())
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.OptSelect, operators.OptIndex:
			return true
		case operators.Index:
			return isOptional(a, call.Args()[0])
		}
	}
	return false
}

// optionalInstead suggests a receiver that is optional.
func optionalInstead(a *ast.AST, call ast.CallExpr, name string) string {
	if target := call.Target(); target.Kind() == ast.SelectKind && !target.AsSelect().IsTestOnly() {
		if operand, err := parser.Unparse(target.AsSelect().Operand(), a.SourceInfo()); err == nil && len(operand) <= maxShown {
			return fmt.Sprintf("use %s.?%s.%s(...)", operand, target.AsSelect().FieldName(), name)
		}
	}
	return fmt.Sprintf("use an optional value, as in object.?name.%s(...)", name)
}
