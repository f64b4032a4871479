package rehearsal

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/policy"
)

// readings are what the expressions of a policy read, as far as names in them are constant.
type readings struct {
	expressions []reading
	variables   map[string]*reading
}

// reading is what one expression reads.
type reading struct {
	field, text, variable string
	validation            bool
	parsed                *cel.Ast
	// paths of the inputs, as "object.spec.containers[*].image".
	paths map[string]bool
	// result are the paths that the value of the expression comes from.
	result []string
}

func newReadings(c *policy.Compiler, spec *v1alpha1.WebhookPolicySpec) *readings {
	r := &readings{variables: map[string]*reading{}}
	at := field.NewPath("spec")
	for i, v := range spec.Variables {
		r.add(c, &reading{field: at.Child("variables").Index(i).Child("expression").String(), text: v.Expression,
			variable: v.Name})
	}
	for i, l := range spec.Lookups {
		r.add(c, &reading{field: at.Child("lookups").Index(i).Child("requestKeys").String(), text: l.RequestKeys})
	}
	for i, m := range spec.MatchConditions {
		r.add(c, &reading{field: at.Child("matchConditions").Index(i).Child("expression").String(), text: m.Expression})
	}
	for i, v := range spec.Validations {
		r.add(c, &reading{field: at.Child("validations").Index(i).Child("expression").String(), text: v.Expression,
			validation: true})
		if v.MessageExpression != "" {
			r.add(c, &reading{field: at.Child("validations").Index(i).Child("messageExpression").String(),
				text: v.MessageExpression})
		}
	}
	for i, a := range spec.AuditAnnotations {
		r.add(c, &reading{field: at.Child("auditAnnotations").Index(i).Child("valueExpression").String(),
			text: a.ValueExpression})
	}
	for i, m := range spec.Mutations {
		here := at.Child("mutations").Index(i)
		if m.ApplyConfiguration != nil {
			r.add(c, &reading{field: here.Child("applyConfiguration", "expression").String(),
				text: m.ApplyConfiguration.Expression})
		}
		if m.JSONPatch != nil {
			r.add(c, &reading{field: here.Child("jsonPatch", "expression").String(), text: m.JSONPatch.Expression})
		}
	}
	return r
}

func (r *readings) add(c *policy.Compiler, e *reading) {
	e.paths = map[string]bool{}
	parsed, err := c.Parse(e.text)
	if err == nil {
		e.parsed = parsed
		w := walk{readings: r, into: e}
		e.result = w.visit(parsed.NativeRep().Expr(), nil)
		for _, path := range e.result {
			e.paths[path] = true
		}
	}
	r.expressions = append(r.expressions, *e)
	if e.variable != "" {
		r.variables[e.variable] = e
	}
}

// at returns the expression of a field.
func (r *readings) at(field string) *reading {
	i := slices.IndexFunc(r.expressions, func(e reading) bool { return e.field == field })
	if i < 0 {
		return nil
	}
	return &r.expressions[i]
}

// reads reports whether an expression, or a variable that it reads, reads an input or a part of it.
func (e *reading) reads(path string) bool {
	if e == nil {
		return false
	}
	for p := range e.paths {
		if isIn(p, path) {
			return true
		}
	}
	return false
}

// readsAround reports whether an expression reads a value, a part of it, or one that contains it.
func (e *reading) readsAround(path string) bool {
	for p := range e.paths {
		if isIn(p, path) || isIn(path, p) {
			return true
		}
	}
	return false
}

// isIn reports whether a path is another one or below it.
func isIn(path, of string) bool {
	return path == of || strings.HasPrefix(path, of+".") || strings.HasPrefix(path, of+"[")
}

// walk follows the paths of inputs through one expression.
type walk struct {
	readings *readings
	into     *reading
}

// scope are the paths of the variables of loops.
type scope map[string][]string

func (s scope) with(name string, paths []string) scope {
	out := scope{name: paths}
	for n, p := range s {
		if n != name {
			out[n] = p
		}
	}
	return out
}

// maxPaths bounds the paths of one value. Variables that read others twice would double them.
const maxPaths = 64

// visit returns the paths that the value of an expression comes from, and records what else it
// reads.
func (w *walk) visit(e ast.Expr, s scope) []string {
	out := w.visitKind(e, s)
	return out[:min(len(out), maxPaths):min(len(out), maxPaths)]
}

func (w *walk) visitKind(e ast.Expr, s scope) []string {
	switch e.Kind() {
	case ast.IdentKind:
		name := strings.TrimPrefix(e.AsIdent(), ".")
		if paths, ok := s[name]; ok {
			return paths
		}
		return []string{name}
	case ast.SelectKind:
		return w.selected(w.visit(e.AsSelect().Operand(), s), e.AsSelect().FieldName())
	case ast.CallKind:
		return w.call(e.AsCall(), s)
	case ast.ComprehensionKind:
		return w.loop(e.AsComprehension(), s)
	case ast.ListKind:
		var out []string
		for _, element := range e.AsList().Elements() {
			w.record(w.visit(element, s))
		}
		return out
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.record(w.visit(entry.AsMapEntry().Key(), s))
			w.record(w.visit(entry.AsMapEntry().Value(), s))
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			w.record(w.visit(f.AsStructField().Value(), s))
		}
	}
	return nil
}

func (w *walk) record(paths []string) {
	for _, p := range paths {
		w.into.paths[p] = true
	}
}

func (w *walk) selected(operand []string, name string) (out []string) {
	for _, p := range operand {
		if p != "variables" {
			out = append(out, p+"."+name)
			continue
		}
		if v := w.readings.variables[name]; v != nil {
			for path := range v.paths {
				w.into.paths[path] = true
			}
			out = append(out, v.result...)
		}
	}
	return out
}

func (w *walk) call(c ast.CallExpr, s scope) []string {
	var args [][]string
	if c.IsMemberFunction() {
		args = append(args, w.visit(c.Target(), s))
	}
	for _, arg := range c.Args() {
		args = append(args, w.visit(arg, s))
	}
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		w.record(args[1])
		key := c.Args()[1]
		if name, ok := literal(key); ok {
			return w.selected(args[0], name)
		}
		return each(args[0])
	case operators.Conditional:
		w.record(args[0])
		return append(args[1], args[2]...)
	case operators.Add, "orValue", "or", "filter", "value", "first", "last":
		return slices.Concat(args...)
	}
	for _, paths := range args {
		w.record(paths)
	}
	return nil
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	name, ok := e.AsLiteral().(types.String)
	return string(name), ok
}

func each(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, p+"[*]")
	}
	return out
}

// loop follows a macro. The value of a filter comes from its range.
func (w *walk) loop(c ast.ComprehensionExpr, s scope) []string {
	over := w.visit(c.IterRange(), s)
	w.record(over)
	w.record(w.visit(c.AccuInit(), s))
	inner := s.with(c.IterVar(), each(over)).with(c.AccuVar(), nil)
	if c.IterVar2() != "" {
		inner = inner.with(c.IterVar(), nil).with(c.IterVar2(), each(over))
	}
	w.record(w.visit(c.LoopCondition(), inner))
	w.record(w.visit(c.LoopStep(), inner))
	w.record(w.visit(c.Result(), inner))
	if isFilter(c) {
		return over
	}
	return nil
}

// isFilter recognizes filter(): it appends elements of the range to a list.
func isFilter(c ast.ComprehensionExpr) bool {
	step := c.LoopStep()
	if step.Kind() != ast.CallKind || step.AsCall().FunctionName() != operators.Conditional {
		return false
	}
	added := step.AsCall().Args()[1]
	if added.Kind() != ast.CallKind || added.AsCall().FunctionName() != operators.Add {
		return false
	}
	list := added.AsCall().Args()[1]
	return list.Kind() == ast.ListKind && list.AsList().Size() == 1 &&
		list.AsList().Elements()[0].Kind() == ast.IdentKind &&
		list.AsList().Elements()[0].AsIdent() == c.IterVar()
}

// quantity matches paths of quantities, which are texts such as 500m and 1Gi.
var quantity = regexp.MustCompile(`\.(limits|requests|capacity|allocatable|hard|overhead\.podFixed)\.[^.\[]+$`)

// warnings warns about parts of expressions that never do what they say.
func (r *readings) warnings() (out []advice.Warning) {
	for i := range r.expressions {
		e := &r.expressions[i]
		if e.parsed == nil {
			continue
		}
		native := e.parsed.NativeRep()
		var texts []string
		ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
			if text := withoutEffect(x); text != "" && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
			if text := r.comparedQuantity(native, x); text != "" && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}))
		for _, text := range texts {
			out = append(out, advice.Warning{Field: e.field, Text: text})
		}
	}
	return out
}

// withoutEffect recognizes Object.spec{?x: optional.none()}.
func withoutEffect(e ast.Expr) string {
	if e.Kind() != ast.StructKind {
		return ""
	}
	for _, f := range e.AsStruct().Fields() {
		entry := f.AsStructField()
		value := entry.Value()
		if entry.IsOptional() && isOptionalNone(value) {
			return fmt.Sprintf("%s{?%s: optional.none()} leaves the field as it is: "+
				"to remove it, use a JSONPatch with op: \"remove\"", e.AsStruct().TypeName(), entry.Name())
		}
	}
	return ""
}

func isOptionalNone(e ast.Expr) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	call := e.AsCall()
	if !call.IsMemberFunction() {
		return call.FunctionName() == "optional.none"
	}
	target := call.Target()
	return call.FunctionName() == "none" && target.Kind() == ast.IdentKind && target.AsIdent() == "optional"
}

// comparedQuantity recognizes x.limits.memory <= "1Gi", which compares texts.
func (r *readings) comparedQuantity(native *ast.AST, e ast.Expr) string {
	if e.Kind() != ast.CallKind {
		return ""
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
	default:
		return ""
	}
	for i, arg := range call.Args() {
		var paths []string
		w := walk{readings: r, into: &reading{paths: map[string]bool{}}}
		paths = w.visit(arg, nil)
		other := call.Args()[1-i]
		if other.Kind() != ast.LiteralKind || !slices.ContainsFunc(paths, quantity.MatchString) {
			continue
		}
		text, err := parser.Unparse(arg, native.SourceInfo())
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s is a quantity, which is a text such as \"500m\", and is not compared by its amount: "+
			"use quantity(%s).compareTo(quantity(...))", text, text)
	}
	return ""
}
