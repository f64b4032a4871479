package pattern

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	ce "github.com/ostiary/ostiary/internal/migrate/kyverno/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/place"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/shape"
)

// null is a default of any type for the type checker.
const null = "dyn(null)"

// scalar compiles a pattern that is no map or list. The test of an absent value has the
// result absent.
func (c *compiler) scalar(pattern any, at place.Place, absent bool) (test, error) {
	pattern, err := c.checkScalar(pattern)
	if err != nil {
		return test{}, err
	}
	switch kind := at.Shape.Kind(); kind {
	case shape.Map:
		return unlessPresent(at, absent), nil
	case shape.List:
		item := c.variable(at.Name())
		body, err := single(pattern, ce.Term(item), at.Shape.Element())
		return every(at, item, body, absent), err
	case shape.Any, shape.Number:
		return c.untyped(pattern, at, absent)
	default:
		return typed(pattern, at, kind, absent)
	}
}

// unlessPresent is the test of a value that cannot pass.
func unlessPresent(at place.Place, absent bool) test {
	if !absent {
		return test{ce.False(), false}
	}
	return test{ce.Not(at.Present()), true}
}

// every tests all elements of a list.
func every(at place.Place, item string, body ce.Expression, absent bool) test {
	if absent {
		return test{ce.Macro(at.Or("[]"), "all", item, body), true}
	}
	return test{ce.And(at.Present(), ce.Macro(at.Value(), "all", item, body)), false}
}

// single compiles a pattern for one element of a list, which cannot be a list.
func single(pattern any, v ce.Expression, s shape.Shape) (ce.Expression, error) {
	switch kind := s.Kind(); kind {
	case shape.Map, shape.List:
		return ce.False(), nil
	case shape.Any, shape.Number:
		return untypedText(pattern, v)
	default:
		return scalarText(pattern, v, kind)
	}
}

// typed compiles a pattern for a value of a known type: with a default for an absent value
// if one has the same result.
func typed(pattern any, at place.Place, kind shape.Kind, absent bool) (test, error) {
	compile := func(v ce.Expression) (ce.Expression, error) { return scalarText(pattern, v, kind) }
	if !at.Optional() {
		e, err := compile(at.Value())
		return test{e, absent}, err
	}
	for _, value := range candidates(pattern, kind) {
		if matches(pattern, value) == absent {
			text := literal(value)
			if kind == shape.IntOrString || kind == shape.Quantity {
				text = "dyn(" + text + ")"
			}
			e, err := compile(at.Or(text))
			return test{e, absent}, err
		}
	}
	e, err := compile(at.Value())
	if absent {
		return test{ce.Or(ce.Not(at.Present()), e), true}, err
	}
	return test{ce.And(at.Present(), e), false}, err
}

// candidates are values of a kind that may stand for an absent one.
func candidates(pattern any, kind shape.Kind) []any {
	if kind == shape.Bool {
		return []any{false, true}
	}
	var texts []any
	numbers := []any{int64(0)}
	switch p := pattern.(type) {
	case int64:
		numbers = append(numbers, p, int64(1))
	case string:
		for _, c := range alternatives(p)[0] {
			if n, ok := c.integer(); ok {
				numbers = append(numbers, n, n+1, n-1)
			}
			text := strings.NewReplacer("*", "", "?", "-").Replace(c.operand)
			texts = append(texts, text)
		}
	}
	switch kind {
	case shape.Int:
		return numbers
	case shape.IntOrString:
		return append(numbers, append(texts, "")...)
	case shape.Quantity:
		return quantities(texts)
	}
	return append([]any{"", "0"}, texts...)
}

// quantities are the texts that are quantities. The empty text may stand for an absent
// quantity if no text is one, as then nothing reads it as a quantity.
func quantities(texts []any) []any {
	found := []any{"0"}
	for _, t := range texts {
		if newCondition("==", t.(string)).quantity != nil {
			found = append(found, t)
		}
	}
	if len(found) == 1 {
		found = append(found, "")
	}
	return found
}

func literal(value any) string {
	if s, ok := value.(string); ok {
		return ce.Quote(s).String()
	}
	return fmt.Sprint(value)
}

// scalarText compiles a pattern for a value that is present.
func scalarText(pattern any, v ce.Expression, kind shape.Kind) (ce.Expression, error) {
	switch p := pattern.(type) {
	case nil:
		return zero(v, kind), nil
	case bool:
		if kind != shape.Bool {
			return ce.False(), nil
		}
		return equals(v, ce.Constant(p)), nil
	case int64:
		return integerText(p, v, kind), nil
	case float64:
		return floatText(p, v, kind), nil
	}
	text := pattern.(string)
	if kind == shape.Bool {
		isTrue, isFalse := matches(text, true), matches(text, false)
		return ce.If(ce.Dynamic(v), ce.Constant(isTrue), ce.Constant(isFalse)), nil
	}
	return alternativesText(text, func(c condition) (ce.Expression, error) { return conditionText(c, v, kind) }, v, kind == shape.String)
}

// zero compares with null, which all zero values equal.
func zero(v ce.Expression, kind shape.Kind) ce.Expression {
	number, text := ce.Relate(v, "==", ce.Term("0")), ce.Relate(v, "==", ce.Quote(""))
	switch kind {
	case shape.Bool:
		return ce.Not(v)
	case shape.Int:
		return number
	case shape.String:
		return text
	}
	return ce.Or(number, text)
}

func equals(v, constant ce.Expression) ce.Expression {
	switch {
	case constant.IsTrue():
		return ce.Dynamic(v)
	case constant.IsFalse():
		return ce.Not(v)
	}
	return ce.Relate(v, "==", constant)
}

// alternativesText compiles the text of a pattern. Several literals become a list if v is
// compared with each of them.
func alternativesText(text string, compile func(condition) (ce.Expression, error), v ce.Expression, merge bool) (ce.Expression, error) {
	var some []ce.Expression
	var literals []ce.Expression
	for _, conditions := range alternatives(text) {
		if c := conditions[0]; merge && len(conditions) == 1 && c.plain("==") {
			literals = append(literals, ce.Quote(c.operand))
			continue
		}
		all, err := conjunction(conditions, compile, v, merge)
		if err != nil {
			return ce.False(), err
		}
		some = append(some, all)
	}
	return ce.Or(append([]ce.Expression{oneOf(v, literals)}, some...)...), nil
}

func conjunction(conditions []condition, compile func(condition) (ce.Expression, error), v ce.Expression, merge bool) (ce.Expression, error) {
	var all, excluded []ce.Expression
	for _, c := range conditions {
		if merge && c.plain("!=") {
			excluded = append(excluded, ce.Quote(c.operand))
			continue
		}
		e, err := compile(c)
		if err != nil {
			return ce.False(), err
		}
		all = append(all, e)
	}
	return ce.And(append([]ce.Expression{ce.Not(oneOf(v, excluded))}, all...)...), nil
}

// plain reports whether the condition compares with a literal.
func (c condition) plain(operator string) bool {
	return c.operator == operator && !c.numeric() && !HasWildcard(c.operand)
}

func oneOf(v ce.Expression, literals []ce.Expression) ce.Expression {
	switch len(literals) {
	case 0:
		return ce.False()
	case 1:
		return ce.Relate(v, "==", literals[0])
	}
	return ce.Relate(v, "in", ce.List(literals...))
}

// integerText compares with an integer, which strings can have as text.
func integerText(n int64, v ce.Expression, kind shape.Kind) ce.Expression {
	switch kind {
	case shape.Int:
		return ce.Relate(v, "==", ce.Term(strconv.FormatInt(n, 10)))
	case shape.String:
		return ce.Call(v, "matches", ce.Quote(integerPattern(n)))
	case shape.IntOrString, shape.Quantity:
		return ce.Call(ce.Function("string", v), "matches", ce.Quote(integerPattern(n)))
	}
	return ce.False()
}

func integerPattern(n int64) string {
	switch {
	case n == 0:
		return "^[+-]?0+$"
	case n < 0:
		return "^-0*" + strconv.FormatInt(n, 10)[1:] + "$"
	}
	return "^[+]?0*" + strconv.FormatInt(n, 10) + "$"
}

// Decimal is a regular expression for text that is a number.
const Decimal = `^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$`

// floatText compares with a number that is no integer.
func floatText(n float64, v ce.Expression, kind shape.Kind) ce.Expression {
	text := ce.Term(strconv.FormatFloat(n, 'f', -1, 64))
	switch kind {
	case shape.String:
		return ce.And(ce.Call(v, "matches", ce.Quote(Decimal)), ce.Relate(ce.Function("double", v), "==", text))
	case shape.IntOrString, shape.Quantity:
		s := ce.Function("string", v)
		return ce.And(ce.Call(s, "matches", ce.Quote(Decimal)), ce.Relate(ce.Function("double", v), "==", text))
	}
	return ce.False()
}

// conditionText compiles a condition for a value of a known type.
func conditionText(c condition, v ce.Expression, kind shape.Kind) (ce.Expression, error) {
	switch {
	case kind == shape.Int:
		return integerCondition(c, v), nil
	case kind != shape.String:
		v = ce.Function("string", v)
	}
	if kind == shape.Quantity && c.quantity != nil {
		return compareQuantities(c, v), nil
	}
	if c.numeric() {
		return numericText(c, v), nil
	}
	return textCondition(c, v), nil
}

func integerCondition(c condition, v ce.Expression) ce.Expression {
	if n, ok := c.integer(); ok {
		return ce.Relate(v, c.operator, ce.Term(strconv.FormatInt(n, 10)))
	}
	switch {
	case c.quantity != nil:
		return compareQuantities(c, ce.Function("string", v))
	case c.duration != nil: // only 0 is a duration
		zero := ce.Relate(v, "==", ce.Term("0"))
		return ce.If(zero, ce.Constant(c.matches(int64(0))), ce.Constant(c.operator == "!="))
	}
	return textCondition(c, ce.Function("string", v))
}

// Duration is a regular expression for text that Go accepts as a duration, except 0, which
// CEL does not accept without a unit.
const Duration = `^[-+]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

// numericText compares text as durations or quantities, if it is one.
func numericText(c condition, v ce.Expression) ce.Expression {
	if c.operator == "!=" {
		equal := c
		equal.operator = "=="
		return ce.Not(numericText(equal, v))
	}
	quantities := ce.And(ce.Function("isQuantity", v), compareQuantities(c, v))
	switch {
	case c.quantity == nil:
		return CompareDuration(c.operator, *c.duration, v)
	case c.duration == nil:
		return quantities
	}
	return ce.If(isDuration(v), compareDurations(c.operator, *c.duration, v), quantities)
}

func isDuration(v ce.Expression) ce.Expression { return ce.Call(v, "matches", ce.Quote(Duration)) }

func compareDurations(operator string, d time.Duration, v ce.Expression) ce.Expression {
	if v.IsText() {
		v = ce.Function("dyn", v) // API servers reject duration() of constant text that is none
	}
	return ce.Relate(ce.Function("duration", v), operator, ce.Function("duration", ce.Quote(d.String())))
}

// CompareDuration compares text that is a duration, also 0 without a unit.
func CompareDuration(operator string, d time.Duration, v ce.Expression) ce.Expression {
	e := ce.And(isDuration(v), compareDurations(operator, d, v))
	if compares(operator, compare(0, d)) {
		return ce.Or(ce.Relate(v, "in", ce.Term(`["0", "+0", "-0"]`)), e)
	}
	return e
}

// CompareUnits compares text that is a duration with a unit.
func CompareUnits(operator string, d time.Duration, v ce.Expression) ce.Expression {
	return ce.And(isDuration(v), compareDurations(operator, d, v))
}

func compareQuantities(c condition, v ce.Expression) ce.Expression {
	sign := ce.Call(ce.Function("quantity", v), "compareTo", ce.Function("quantity", ce.Quote(c.operand)))
	return ce.Relate(sign, c.operator, ce.Term("0"))
}

func textCondition(c condition, v ce.Expression) ce.Expression {
	switch c.operator {
	case "==":
		return Match(c.operand, v)
	case "!=":
		return ce.Not(Match(c.operand, v))
	}
	return ce.False()
}

// Match returns an expression for text that matches a pattern with wildcards.
func Match(pattern string, v ce.Expression) ce.Expression {
	inner := strings.Trim(pattern, "*")
	starts, ends := strings.HasPrefix(pattern, "*"), strings.HasSuffix(pattern, "*")
	switch {
	case !HasWildcard(pattern):
		return ce.Relate(v, "==", ce.Quote(pattern))
	case inner == "":
		return ce.True()
	case inner == "?" && (starts || ends):
		return ce.Relate(v, "!=", ce.Quote(""))
	case HasWildcard(inner):
		text := regexp.QuoteMeta(pattern)
		text = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(text)
		return ce.Call(v, "matches", ce.Quote("(?s)^"+text+"$"))
	case starts && ends:
		return ce.Call(v, "contains", ce.Quote(inner))
	case starts:
		return ce.Call(v, "endsWith", ce.Quote(inner))
	}
	return ce.Call(v, "startsWith", ce.Quote(inner))
}
