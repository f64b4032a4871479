package uncounted

import (
	"math"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// extent bounds a value: its elements if it is a list or a map, those of each list and map
// nested in it, and the bytes of each text in it. The numbers are float64, so that
// products never overflow.
type extent struct {
	elements, nested, text float64
	list                   bool // it is known to be a list
}

func scalar() extent { return extent{elements: 1, text: 1} }

// part bounds a field or an element of a value.
func (e extent) part() extent { return extent{elements: e.nested, nested: e.nested, text: e.text} }

func (e extent) plus(o extent) extent {
	sum := extent{elements: e.elements + o.elements, nested: max(e.nested, o.nested), text: e.text + o.text}
	if e.list || o.list {
		sum.text, sum.list = max(e.text, o.text), true
	}
	return sum
}

func (e extent) union(o extent) extent {
	return extent{max(e.elements, o.elements), max(e.nested, o.nested), max(e.text, o.text), e.list && o.list}
}

// traversal is the cost of reading a text once: CEL charges a tenth per character.
func (e extent) traversal() float64 { return 1 + e.text/10 }

// bounder finds an upper bound of the cost of an expression, for inputs of one extent.
//
// The estimate of CEL itself (checker.Cost) does not count the selection of fields of
// values without a static type, and objects have none. This bound counts every
// step of the evaluation. TestBounds compares it with the cost that CEL counts.
type bounder struct {
	input extent
	local map[string][]extent
}

// costBound returns an upper bound of the cost of an expression that reads values of an
// extent; infinite if the expression calls a function with an unknown cost.
func costBound(e ast.Expr, input extent) float64 {
	b := bounder{input: input, local: map[string][]extent{}}
	cost, _ := b.bound(e)
	return cost
}

func unbounded() (float64, extent) {
	return math.Inf(1), extent{elements: math.Inf(1), nested: math.Inf(1), text: math.Inf(1)}
}

// bound returns an upper bound of the cost of an expression, and one of the extent of its value.
func (b *bounder) bound(e ast.Expr) (cost float64, size extent) {
	switch e.Kind() {
	case ast.LiteralKind:
		if text, ok := e.AsLiteral().(types.String); ok {
			return 0, extent{elements: 1, text: float64(len(text))}
		}
		return 0, scalar()
	case ast.IdentKind:
		if s := b.local[e.AsIdent()]; len(s) > 0 {
			return 1, s[len(s)-1]
		}
		return 1, b.input
	case ast.SelectKind:
		cost, size = b.bound(e.AsSelect().Operand())
		return cost + 1, size.part()
	case ast.CallKind:
		return b.call(e.AsCall())
	case ast.ListKind:
		cost, size = b.container(10, e.AsList().Elements())
		size.list = true
		return cost, size
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return b.container(30, parts)
	case ast.ComprehensionKind:
		return b.comprehension(e.AsComprehension())
	}
	return unbounded()
}

// container bounds a list or a map literal.
func (b *bounder) container(cost float64, parts []ast.Expr) (float64, extent) {
	size := extent{elements: float64(len(parts))}
	for _, part := range parts {
		c, s := b.bound(part)
		cost += c
		size.nested, size.text = max(size.nested, s.elements, s.nested), max(size.text, s.text)
	}
	return cost, size
}

// comprehension bounds a macro. A list as its accumulator grows with each step by what the
// step adds to an empty one, and everything else is replaced: no macro adds texts.
func (b *bounder) comprehension(c ast.ComprehensionExpr) (float64, extent) {
	rangeCost, elements := b.bound(c.IterRange())
	initCost, initial := b.bound(c.AccuInit())
	cost := rangeCost + initCost
	b.push(c.IterVar(), elements.part())
	b.push(c.IterVar2(), elements.part())
	b.push(c.AccuVar(), initial)
	_, step := b.bound(c.LoopStep())
	b.pop(c.AccuVar())
	grown := step.union(initial)
	if step.list {
		grown.elements = max(initial.elements, step.elements*elements.elements)
	}
	b.push(c.AccuVar(), grown)
	condition, _ := b.bound(c.LoopCondition())
	stepCost, _ := b.bound(c.LoopStep())
	b.pop(c.IterVar())
	b.pop(c.IterVar2())
	resultCost, size := b.bound(c.Result())
	b.pop(c.AccuVar())
	return cost + elements.elements*(condition+stepCost) + resultCost, size
}

func (b *bounder) push(name string, size extent) { b.local[name] = append(b.local[name], size) }

func (b *bounder) pop(name string) { b.local[name] = b.local[name][:len(b.local[name])-1] }

func (b *bounder) call(call ast.CallExpr) (float64, extent) {
	args := slices.Clone(call.Args())
	if call.IsMemberFunction() {
		args = slices.Insert(args, 0, call.Target())
	}
	cost, sizes := 1.0, make([]extent, max(3, len(args)))
	for i, arg := range args {
		c, s := b.bound(arg)
		cost += c
		sizes[i] = s
	}
	own, size := callBound(call.FunctionName(), sizes)
	return cost + own, size
}

// callBound bounds one call, without its arguments. CEL and the libraries of Kubernetes
// define the costs: see CallCost in k8s.io/apiserver/pkg/cel/library and costCall in
// cel-go/interpreter.
func callBound(function string, args []extent) (float64, extent) {
	if cost, size, ok := operatorBound(function, args); ok {
		return cost, size
	}
	a, b, c := args[0], args[1], args[2]
	switch function {
	case "size", "int", "uint", "double", "bool", "hasValue",
		"isGreaterThan", "isLessThan", "compareTo", "isInteger", "asInteger":
		return 1, scalar()
	case "value", "optional.of", "optional.none", "optional.ofNonZeroValue":
		return 2, a
	case "or", "orValue":
		return 2, a.union(b)
	case "startsWith", "endsWith":
		return a.union(b).traversal(), scalar() // versions count either of them
	case "contains":
		return a.traversal() * b.traversal(), scalar()
	case "matches":
		return a.traversal() * (1 + b.text/4), scalar()
	case "string":
		return a.traversal(), extent{elements: 1, text: max(a.text, 64)}
	case "lowerAscii", "upperAscii", "trim", "substring", "charAt":
		return a.traversal(), a
	case "split":
		return 2 * a.traversal(), extent{elements: a.text + 1, text: a.text, list: true}
	case "join":
		text := a.elements * (a.text + b.text)
		return 2 * extent{text: text}.traversal(), extent{elements: 1, text: text}
	case "replace":
		return 2 * a.traversal(), extent{elements: 1, text: (a.text + 1) * (c.text + 1)}
	case "quantity", "isQuantity", "isIP", "ip", "isCIDR", "cidr", "isURL", "url":
		return a.traversal(), scalar()
	}
	return unbounded()
}

func operatorBound(operator string, args []extent) (cost float64, size extent, ok bool) {
	a, b, c := args[0], args[1], args[2]
	switch operator {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse,
		operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate:
		return 1, scalar(), true
	case operators.Conditional:
		return 1, b.union(c), true
	case operators.Equals, operators.NotEquals,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return 1 + min(max(a.elements, a.text), max(b.elements, b.text)), scalar(), true
	case operators.In:
		return 1 + b.elements, scalar(), true
	case operators.Add:
		return a.plus(b).traversal(), a.plus(b), true
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return 2, a.union(a.part()), true
	}
	return 0, extent{}, false
}
