package celsyntax

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// Flow follows the inputs of a policy through its expressions: through selections of
// fields with constant names, the elements of lists in macros such as all(), and the
// variables of the policy. What leads elsewhere is read whole.
type Flow struct {
	inputs    map[string][]occurrence // by name
	variables map[string][]occurrence // by name, of the selections of variables
	elements  map[macro][]occurrence
	memo      map[any]unstructuredjson.Selection // by the name of a variable, and by macro
	count     int                                // of expressions
	unknown   bool                               // an expression does not compile, or variables are used as a value
}

// occurrence is a value in an expression, which may be that of a variable.
type occurrence struct {
	at         ast.NavigableExpr
	variable   string
	expression int
}

// macro identifies a macro in an expression.
type macro struct {
	expression int
	id         int64
}

// NewFlow returns a flow without expressions.
func NewFlow() *Flow {
	return &Flow{
		inputs:    map[string][]occurrence{},
		variables: map[string][]occurrence{},
		elements:  map[macro][]occurrence{},
		memo:      map[any]unstructuredjson.Selection{},
	}
}

// Add adds an expression of the policy, or of a variable if that has a name. The tree is nil if it does not compile.
func (f *Flow) Add(parsed *cel.Ast, variable string) {
	if parsed == nil {
		f.unknown = true
		return
	}
	f.count++
	for _, name := range ast.MatchDescendants(ast.NavigateAST(parsed.NativeRep()), ast.KindMatcher(ast.IdentKind)) {
		f.addName(occurrence{at: name, variable: variable, expression: f.count})
	}
}

func (f *Flow) addName(o occurrence) {
	if c, id, ok := macroOf(o.at); ok {
		if o.at.AsIdent() == c.IterVar() { // not the result so far
			key := macro{o.expression, id}
			f.elements[key] = append(f.elements[key], o)
		}
		return
	}
	name := strings.TrimPrefix(o.at.AsIdent(), ".") // the dot names the same input
	if name != celplugin.VariableVarName {
		f.inputs[name] = append(f.inputs[name], o)
		return
	}
	parent, ok := o.at.Parent()
	if !ok {
		f.unknown = true
		return
	}
	_, field, ok := selectedField(parent)
	f.unknown = f.unknown || !ok || !plainName.MatchString(field)
	o.at = parent
	f.variables[field] = append(f.variables[field], o)
}

// Unknown reports that the policy can read anything, because an expression does not compile or uses variables as a
// value.
func (f *Flow) Unknown() bool { return f.unknown }

// Reads reports whether the policy reads an input.
func (f *Flow) Reads(name string) bool { return len(f.inputs[name]) > 0 }

// ReadOfInput returns what the policy reads of an input.
func (f *Flow) ReadOfInput(name string) (read unstructuredjson.Selection) {
	for _, o := range f.inputs[name] {
		if comparedWithNull(o.at) {
			read = read.Union(unstructuredjson.Path("kind")) // whether there is an object
		} else {
			read = read.Union(f.readOf(o))
		}
	}
	return read
}

// readOf returns what the policy reads of a value.
func (f *Flow) readOf(o occurrence) unstructuredjson.Selection {
	var path []string
	list := false // a part of the concatenation of lists
	for e := o.at; ; {
		parent, ok := e.Parent()
		if !ok {
			return f.readOfResult(o, e).At(path...)
		}
		operand, name, selects := selectedField(parent)
		switch {
		case selects && !list && operand.ID() == e.ID() && plainName.MatchString(name):
			path = append(path, name)
		case passes(parent, e):
			list = list || parent.AsCall().FunctionName() == operators.Add
		case isRange(parent, e):
			key := macro{o.expression, parent.ID()}
			return unstructuredjson.Elements(f.readOfAll(key, f.elements[key])).At(path...)
		case countsOnly(parent, e):
			return unstructuredjson.Elements(unstructuredjson.Selection{}).At(path...)
		default:
			return unstructuredjson.Path(path...)
		}
		e = parent
	}
}

// readOfResult returns what the policy reads of the value of an expression.
func (f *Flow) readOfResult(o occurrence, result ast.NavigableExpr) unstructuredjson.Selection {
	switch {
	case countsOnly(nil, result):
		return unstructuredjson.Elements(unstructuredjson.Selection{})
	case o.variable == "":
		return unstructuredjson.Everything()
	}
	return f.readOfAll(o.variable, f.variables[o.variable])
}

// isRange reports whether a macro with one variable takes its elements from a value.
func isRange(macro, value ast.NavigableExpr) bool {
	if macro.Kind() != ast.ComprehensionKind {
		return false
	}
	c := macro.AsComprehension()
	return c.IterRange().ID() == value.ID() && c.IterVar2() == ""
}

// readOfAll returns what the policy reads of a value that has several occurrences.
func (f *Flow) readOfAll(key any, all []occurrence) unstructuredjson.Selection {
	if read, ok := f.memo[key]; ok {
		return read
	}
	f.memo[key] = unstructuredjson.Everything() // if a variable reads itself, which does not compile
	var read unstructuredjson.Selection
	for _, o := range all {
		read = read.Union(f.readOf(o))
	}
	f.memo[key] = read
	return read
}

// macroOf returns the macro that declares a name.
func macroOf(name ast.NavigableExpr) (c ast.ComprehensionExpr, id int64, ok bool) {
	for e := name; ; {
		parent, ok := e.Parent()
		if !ok {
			return nil, 0, false
		}
		if parent.Kind() == ast.ComprehensionKind {
			c := parent.AsComprehension()
			outside := e.ID() == c.IterRange().ID() || e.ID() == c.AccuInit().ID()
			declared := []string{c.IterVar(), c.IterVar2(), c.AccuVar()}
			if !outside && slices.Contains(declared, name.AsIdent()) {
				return c, parent.ID(), true
			}
		}
		e = parent
	}
}

// passes reports whether the value of a call is that of an operand, or contains the
// elements of it.
func passes(call, operand ast.NavigableExpr) bool {
	if call.Kind() != ast.CallKind {
		return false
	}
	c := call.AsCall()
	switch c.FunctionName() {
	case "orValue", "or", operators.Add:
		return true
	case operators.Conditional:
		return c.Args()[0].ID() != operand.ID()
	}
	return false
}

// countsOnly reports whether a call, which can be nil, or has() depends only on the
// presence of a value, or on the number of its elements.
func countsOnly(call, value ast.NavigableExpr) bool {
	if value.Kind() == ast.SelectKind && value.AsSelect().IsTestOnly() {
		return true
	}
	if call == nil || call.Kind() != ast.CallKind {
		return false
	}
	return slices.Contains([]string{"size", "hasValue"}, call.AsCall().FunctionName())
}

// comparedWithNull recognizes `object == null`, `null != oldObject` and similar.
func comparedWithNull(e ast.NavigableExpr) bool {
	parent, ok := e.Parent()
	if !ok || parent.Kind() != ast.CallKind {
		return false
	}
	call := parent.AsCall()
	if call.FunctionName() != operators.Equals && call.FunctionName() != operators.NotEquals {
		return false
	}
	return slices.ContainsFunc(call.Args(), func(arg ast.Expr) bool {
		return arg.Kind() == ast.LiteralKind && arg.AsLiteral() == types.NullValue
	})
}

// plainName matches names of fields that CEL does not escape.
var plainName = regexp.MustCompile(`^_?[A-Za-z0-9]+(_[A-Za-z0-9]+)*_?$`)
