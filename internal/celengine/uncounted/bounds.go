package uncounted

import (
	"math"
	"slices"

	"github.com/google/cel-go/common/ast"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// bounder finds an upper bound of the cost of an expression, for inputs of one extent.
//
// The estimate of CEL itself (checker.Cost) does not count the selection of fields of
// values without a static type, and objects have none. This bound counts every
// step of the evaluation. TestBounds compares it with the cost that CEL counts.
type bounder struct {
	input extent
	local map[string][]extent
	// variables has extents of variables, if they are known; the others have that of the input.
	variables map[string]extent
	// inner has the bounds of the macros in the step of a macro, which is bounded twice with the same variables.
	inner map[ast.Expr]bounds
}

type bounds struct {
	cost float64
	size extent
}

// bound returns an upper bound of the cost of an expression that reads values of an extent,
// and one of the extent of its value. The cost is infinite if it has no bound. Variables that
// are not known have the extent too.
func bound(e ast.Expr, input extent, variables map[string]extent) (cost float64, size extent) {
	b := bounder{input: input, local: map[string][]extent{}, variables: variables, inner: map[ast.Expr]bounds{}}
	return b.bound(e)
}

func unbounded() (float64, extent) { return math.Inf(1), unlimited() }

// bound returns an upper bound of the cost of an expression, and one of the extent of its value.
func (b *bounder) bound(e ast.Expr) (cost float64, size extent) {
	switch e.Kind() {
	case ast.LiteralKind:
		return 0, literal(e.AsLiteral())
	case ast.IdentKind:
		if s := b.local[e.AsIdent()]; len(s) > 0 {
			return 1, s[len(s)-1]
		}
		return 1, b.input
	case ast.SelectKind:
		if known, ok := b.variable(e); ok {
			return 2, known
		}
		cost, size = b.bound(e.AsSelect().Operand())
		return cost + 1, size.part()
	case ast.CallKind:
		return b.call(e.AsCall())
	case ast.ListKind:
		return b.container(10, e.AsList().Elements())
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return b.container(30, parts)
	case ast.ComprehensionKind:
		known, ok := b.inner[e]
		if !ok {
			known.cost, known.size = b.comprehension(e.AsComprehension())
			b.inner[e] = known
		}
		return known.cost, known.size
	}
	return unbounded()
}

// variable returns the extent of the variable that an expression reads, if it is known.
func (b *bounder) variable(e ast.Expr) (size extent, known bool) {
	s := e.AsSelect()
	if s.IsTestOnly() || !isVariables(s.Operand()) || len(b.local[celplugin.VariableVarName]) > 0 {
		return extent{}, false
	}
	size, known = b.variables[s.FieldName()]
	return size, known
}

// container bounds a list or a map literal.
func (b *bounder) container(cost float64, parts []ast.Expr) (float64, extent) {
	size := extent{weight: 1, container: true}
	for _, part := range parts {
		c, s := b.bound(part)
		cost += c
		size = size.with(s)
	}
	return cost, size
}

// comprehension bounds a macro. A list or a map as its accumulator grows with each step by
// what the step adds to an empty one, and everything else is replaced: no macro adds texts.
func (b *bounder) comprehension(c ast.ComprehensionExpr) (float64, extent) {
	rangeCost, elements := b.bound(c.IterRange())
	initCost, initial := b.bound(c.AccuInit())
	cost := rangeCost + initCost
	outer := b.inner
	b.inner = map[ast.Expr]bounds{}
	b.push(c.IterVar(), elements.part())
	b.push(c.IterVar2(), elements.part())
	b.push(c.AccuVar(), initial)
	_, step := b.bound(c.LoopStep())
	b.pop(c.AccuVar())
	grown := step.union(initial)
	if step.container {
		grown.elements = max(initial.elements, product(step.elements, elements.elements))
		grown.weight = initial.weight + product(step.weight, elements.elements)
	}
	b.push(c.AccuVar(), grown)
	condition, _ := b.bound(c.LoopCondition())
	stepCost, _ := b.bound(c.LoopStep())
	b.pop(c.IterVar())
	b.pop(c.IterVar2())
	b.inner = map[ast.Expr]bounds{}
	resultCost, size := b.bound(c.Result())
	b.pop(c.AccuVar())
	b.inner = outer
	return cost + product(elements.elements, condition+stepCost) + resultCost, size
}

func (b *bounder) push(name string, size extent) {
	size.constant, size.most = nil, 0 // an accumulator changes
	b.local[name] = append(b.local[name], size)
}

func (b *bounder) pop(name string) { b.local[name] = b.local[name][:len(b.local[name])-1] }

func (b *bounder) call(call ast.CallExpr) (float64, extent) {
	args := slices.Clone(call.Args())
	if call.IsMemberFunction() {
		args = slices.Insert(args, 0, call.Target())
	}
	cost, sizes := 1.0, make([]extent, len(args))
	for i, arg := range args {
		c, s := b.bound(arg)
		cost += c
		sizes[i] = s
	}
	own, size := callBound(call.FunctionName(), sizes)
	return cost + own, size
}
