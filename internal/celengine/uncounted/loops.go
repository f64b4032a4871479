package uncounted

import (
	"sync"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// The library evaluates the macros all, exists, exists_one, map and filter as a general
// loop, whose accumulator is a variable that each step looks up. In a batch they are calls
// of these functions, which no expression can name. Their arguments are the name of the
// variable, the list or map, and:
const (
	allOf     = "@all"        // a condition
	existsOf  = "@exists"     // a condition
	oneOf     = "@exists_one" // a condition
	collected = "@collect"    // a value, and before it a condition, if there is one
)

// withLoops returns an expression with such calls.
func withLoops(checked *ast.AST) *ast.AST {
	out, exprs := ast.Copy(checked), ast.NewExprFactory()
	ast.PostOrderVisit(out.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if args := presenceArgs(e, exprs); args != nil {
			e.SetKindCase(exprs.NewCall(e.ID(), presenceOf, args...))
		}
		if e.Kind() != ast.ComprehensionKind {
			return
		}
		c := e.AsComprehension()
		if function, args := loopFor(c); function != "" {
			args = append([]ast.Expr{exprs.NewLiteral(0, types.String(c.IterVar())), c.IterRange()}, args...)
			e.SetKindCase(exprs.NewCall(e.ID(), function, args...))
		}
	}))
	return out
}

// loopFor returns the function for a loop, with its last arguments, or "" for one that is
// left to the library.
func loopFor(e ast.ComprehensionExpr) (function string, args []ast.Expr) {
	c := comprehension{e}
	if c.HasIterVar2() {
		return "", nil
	}
	if args := c.quantifier(operators.LogicalAnd, types.True); args != nil {
		return allOf, args
	}
	if args := c.quantifier(operators.LogicalOr, types.False); args != nil {
		return existsOf, args
	}
	condition, added := c.added()
	switch {
	case added == nil:
		return "", nil
	case c.collects(added):
		return collected, append(condition, added.AsList().Elements()...)
	case c.counts(added) && len(condition) == 1:
		return oneOf, condition
	}
	return "", nil
}

// comprehension is the syntax of a loop, which a macro may have made.
type comprehension struct{ ast.ComprehensionExpr }

func (c comprehension) isAccumulator(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == c.AccuVar()
}

// quantifier returns the condition that each step combines with the accumulator, or nil.
func (c comprehension) quantifier(operator string, start types.Bool) []ast.Expr {
	args := argsOf(c.LoopStep(), operator)
	if len(args) != 2 || !c.isAccumulator(args[0]) || !c.isAccumulator(c.Result()) || !isLiteral(c.AccuInit(), start) {
		return nil
	}
	return args[1:]
}

// added returns what each step adds to the accumulator, or nil, and the condition for it, if
// there is one.
func (c comprehension) added() (condition []ast.Expr, added ast.Expr) {
	step := c.LoopStep()
	if args := argsOf(step, operators.Conditional); len(args) == 3 && c.isAccumulator(args[2]) {
		condition, step = args[:1:1], args[1]
	}
	args := argsOf(step, operators.Add)
	if len(args) != 2 || !c.isAccumulator(args[0]) || !isLiteral(c.LoopCondition(), types.True) {
		return nil, nil
	}
	return condition, args[1]
}

// collects reports whether the loop makes a list of one value for each element.
func (c comprehension) collects(added ast.Expr) bool {
	start := c.AccuInit()
	return start.Kind() == ast.ListKind && start.AsList().Size() == 0 && c.isAccumulator(c.Result()) &&
		added.Kind() == ast.ListKind && added.AsList().Size() == 1 && len(added.AsList().OptionalIndices()) == 0
}

// counts reports whether the loop counts elements, and compares their number with one.
func (c comprehension) counts(added ast.Expr) bool {
	end := argsOf(c.Result(), operators.Equals)
	return isLiteral(c.AccuInit(), types.Int(0)) && isLiteral(added, types.Int(1)) &&
		len(end) == 2 && c.isAccumulator(end[0]) && isLiteral(end[1], types.Int(1))
}

// argsOf returns the arguments of an operator, or nil for another expression.
func argsOf(e ast.Expr, operator string) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operator {
		return nil
	}
	return e.AsCall().Args()
}

func isLiteral(e ast.Expr, value ref.Val) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == value
}

// loop evaluates such a call.
type loop struct {
	id        int64
	function  string
	variable  string
	over      interpreter.InterpretableV2
	condition interpreter.InterpretableV2 // nil if all elements count
	value     interpreter.InterpretableV2 // nil unless values are collected
	empty     traits.Lister
}

// loopOf returns nil for the call of another function.
func loopOf(call interpreter.InterpretableCall) *loop {
	args := call.Args()
	switch call.Function() {
	case allOf, existsOf, oneOf, collected:
	default:
		return nil
	}
	name, ok := args[0].(interpreter.InterpretableConst)
	if !ok {
		return nil
	}
	variable, ok := name.Value().(types.String)
	if !ok {
		return nil
	}
	l := &loop{id: call.ID(), function: call.Function(), variable: string(variable), over: args[1], empty: listOf(nil)}
	if call.Function() == collected {
		l.value, args = args[len(args)-1], args[:len(args)-1]
	}
	if len(args) > 2 {
		l.condition = args[2]
	}
	return l
}

// ID implements interpreter.Interpretable.
func (l *loop) ID() int64 { return l.id }

// Eval implements interpreter.Interpretable.
func (l *loop) Eval(vars interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (l *loop) Exec(outer *interpreter.ExecutionFrame) ref.Val {
	over := l.over.Exec(outer)
	if types.IsUnknownOrError(over) {
		return over
	}
	w, ok := walkOver(over)
	if !ok {
		return types.ValOrErr(over, "got '%T', expected iterable type", over)
	}
	w.element = elements.Get().(*element)
	w.element.name, w.element.outer = l.variable, outer
	w.inner = outer.Push(w.element)
	defer w.end()
	switch l.function {
	case allOf:
		return l.until(types.False, &w)
	case existsOf:
		return l.until(types.True, &w)
	case oneOf:
		return l.one(&w)
	}
	return l.collect(&w)
}

// until returns a truth value as soon as the condition has it for an element, even if it is
// an error for one before. Without such an element the result is the opposite, or the first
// error.
func (l *loop) until(value types.Bool, w *walk) ref.Val {
	var out ref.Val = !value
	for w.next() {
		got := l.holds(w)
		if got == value {
			return value
		}
		if out == !value {
			out = got
		}
	}
	return out
}

// holds returns the value of the condition, which is an error if it is no truth value.
func (l *loop) holds(w *walk) ref.Val {
	value := l.condition.Exec(w.inner)
	if _, ok := value.(types.Bool); ok {
		return value
	}
	return types.MaybeNoSuchOverloadErr(value)
}

// one returns the last error of the condition, as the general loop does: a conditional operator that fails replaces
// the accumulator.
func (l *loop) one(w *walk) ref.Val {
	count := 0
	var err ref.Val
	for w.next() {
		switch got := l.holds(w); got {
		case types.True:
			count++
		case types.False:
		default:
			err = got
		}
	}
	if err != nil {
		return err
	}
	return types.Bool(count == 1)
}

// collect returns the values, or the last error of the condition, or the first error of the value that follows it.
func (l *loop) collect(w *walk) ref.Val {
	var values []ref.Val
	var err ref.Val
	for w.next() {
		holds, failed := l.chosen(w)
		switch {
		case failed != nil:
			err = failed
			continue
		case !holds || err != nil:
			continue
		}
		value := l.value.Exec(w.inner)
		if types.IsUnknownOrError(value) {
			err = value
			continue
		}
		values = append(values, value)
	}
	switch {
	case err != nil:
		return err
	case len(values) == 0:
		return l.empty
	}
	return listOf(values)
}

// chosen reports whether the condition, if there is one, is true.
func (l *loop) chosen(w *walk) (holds bool, err ref.Val) {
	if l.condition == nil {
		return true, nil
	}
	switch got := l.holds(w); got {
	case types.True:
		return true, nil
	case types.False:
		return false, nil
	default:
		return false, got
	}
}

// walk visits the elements of a list, or the keys of a map.
type walk struct {
	list     traits.Lister // nil for a map
	at, size types.Int
	keys     traits.Iterator

	element *element
	inner   *interpreter.ExecutionFrame
}

func walkOver(over ref.Val) (walk, bool) {
	if list, ok := over.(traits.Lister); ok {
		if size, ok := list.Size().(types.Int); ok {
			return walk{list: list, size: size}, true
		}
	}
	keys, ok := over.(traits.Iterable)
	if !ok || !over.Type().HasTrait(traits.IterableType) {
		return walk{}, false
	}
	return walk{keys: keys.Iterator()}, true
}

// next gives the variable of the loop its next value, if there is one.
func (w *walk) next() bool {
	switch {
	case w.list == nil && w.keys.HasNext() == types.True:
		w.element.value = w.keys.Next()
	case w.list != nil && w.at < w.size:
		w.element.value = w.list.Get(w.at)
		w.at++
	default:
		return false
	}
	return true
}

// end ends the scope of the variable of the loop.
func (w *walk) end() {
	w.inner.Pop()
	*w.element = element{}
	elements.Put(w.element)
}

// elements are used again for one loop after the other, as the frames of the library are.
var elements = sync.Pool{New: func() any { return &element{} }} //nolint:gochecknoglobals // it has no state

// element is the variable of a loop. It implements interpreter.Activation.
type element struct {
	name  string
	value ref.Val
	outer *interpreter.ExecutionFrame
}

// ResolveName implements interpreter.Activation.
func (e *element) ResolveName(name string) (any, bool) {
	if name == e.name {
		return e.value, true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (e *element) Parent() interpreter.Activation { return e.outer }

// Unwrap returns the variables outside of the loop, for absolute names such as .object.
func (e *element) Unwrap() interpreter.Activation { return e.outer }
