// Package conditions converts the conditions of Kyverno policies (preconditions and
// deny.conditions), and the JMESPath expressions in them, to CEL.
//
// Two differences are deliberate. NotEquals of text that is a quantity and text that is not
// is true; Kyverno cannot compare them, and both Equals and NotEquals are false. Wildcards
// in values of the request have no effect, so that an author of an object cannot use them;
// those in params have.
package conditions

import (
	"strconv"
	"strings"
	"time"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// Result is a converted condition.
type Result struct {
	ce.Expression
	// Fails reports whether the evaluation fails if a field is absent.
	Fails bool
}

// Compare converts a condition of a key, an operator and a value.
func (s *Scope) Compare(key any, operator string, value any) (Result, error) {
	k, err := s.Any(key)
	if err != nil {
		return Result{}, err
	}
	v, err := s.Any(value)
	if err != nil {
		return Result{}, err
	}
	operator = strings.ToLower(operator)
	e, err := s.compare(k, operator, v)
	if err != nil {
		return Result{}, err
	}
	e, err = s.withNulls(k, operator, v, e)
	return Result{e, mayFail(k, v)}, err
}

// withNulls gives a condition Kyverno's result for null: a key that is null satisfies no
// operator, and a value that is null differs from every key and has no elements.
func (s *Scope) withNulls(k Value, operator string, v Value, e ce.Expression) (ce.Expression, error) {
	member := strings.HasSuffix(operator, "in")
	switch {
	case strings.HasPrefix(operator, "notequal"):
		e = ce.Or(ce.Not(v.notNull()), e)
	case !member || strings.Contains(operator, "not"): // an absent list has no element anyway
		e = ce.And(v.notNull(), e)
	}
	guard := k.notNull()
	if member && k.stream != nil { // quantify knows it
		guard = ce.True()
	}
	if guard.IsTrue() && v.notNull().IsTrue() {
		return s.forced(e, k, v)
	}
	e, err := s.forced(e, k)
	if err != nil {
		return e, err
	}
	return s.forcedValue(ce.And(guard, e), v)
}

func (s *Scope) compare(k Value, operator string, v Value) (ce.Expression, error) {
	switch operator {
	case "equal", "equals":
		return s.equals(k, v)
	case "notequal", "notequals":
		e, err := s.equals(k, v)
		if err != nil || k.kind() != ce.KindAny {
			return ce.Not(e), err
		}
		source, err := k.strict()
		return ce.And(ce.Relate(source, "!=", ce.Term("null")), ce.Not(e)), err
	case "in", "anyin", "allin", "notin", "anynotin", "allnotin":
		return s.membership(k, operator, v)
	}
	symbol := map[string]string{
		"greaterthan":         ">",
		"greaterthanorequals": ">=",
		"lessthan":            "<",
		"lessthanorequals":    "<=",
	}[strings.TrimPrefix(operator, "duration")]
	if symbol == "" {
		return ce.False(), leftOut("the operator %q", operator)
	}
	return s.order(k, symbol, v, strings.HasPrefix(operator, "duration"))
}

// equals converts Equals.
func (s *Scope) equals(k, v Value) (ce.Expression, error) {
	if !v.isConstant && k.kind() == ce.KindString && v.kind() == ce.KindString && v.isFromParams() {
		return s.equalsParams(k, v)
	}
	constantIsKey := k.isConstant && !v.isConstant
	if constantIsKey {
		if text, ok := k.constant.(string); ok && scalar.HasWildcard(text) {
			return ce.False(), leftOut("the key %q with wildcards", text)
		}
		k, v = v, k
	}
	source, err := k.strict()
	if err != nil {
		return source, err
	}
	if !v.isConstant {
		return s.equalsValue(source, k, v)
	}
	if text, ok := v.constant.(string); ok && constantIsKey {
		if _, isDuration := scalar.ParseDuration(text); isDuration {
			s.noteSeconds(source, k)
		}
	}
	return equalsConstant(source, k, v, constantIsKey)
}

// equalsParams compares text with a text of the params, which may have wildcards.
func (s *Scope) equalsParams(k, v Value) (ce.Expression, error) {
	source, err := k.strict()
	if err != nil {
		return source, err
	}
	pattern, err := v.strict()
	s.note("%s and %s are compared as text, without quantities and durations", source, pattern)
	return scalar.MatchPattern(pattern, source), err
}

func equalsConstant(source ce.Expression, k, v Value, constantIsKey bool) (ce.Expression, error) {
	switch c := v.constant.(type) {
	case string:
		return equalsText(source, k, c, constantIsKey)
	case nil:
		return ce.False(), nil
	case int64, float64:
		return equalsNumber(source, k, v, constantIsKey)
	}
	if kind := k.kind(); kind != v.kind() && kind != ce.KindAny {
		return ce.False(), nil
	}
	e, err := literalExpression(v.constant)
	switch {
	case err == nil && e.IsTrue() && k.kind() == ce.KindBool:
		return ce.Dynamic(source), nil
	case err == nil && e.IsFalse() && k.kind() == ce.KindBool:
		return ce.Not(source), nil
	}
	return ce.Relate(source, "==", e), err
}

// equalsValue compares two values of the request.
func (s *Scope) equalsValue(source ce.Expression, k, v Value) (ce.Expression, error) {
	other, err := v.strict()
	if err != nil {
		return other, err
	}
	kind := k.kind()
	if kind == ce.KindQuantity && v.kind() == ce.KindQuantity {
		return scalar.CompareQuantities(source, "==", other), nil
	}
	if kind != v.kind() || kind == ce.KindQuantity || kind == ce.KindNumber {
		if !isLoose(kind) && !isLoose(v.kind()) {
			return ce.False(), leftOut("Equals of %s and %s, which have different types", source, other)
		}
	}
	if kind == ce.KindString || isLoose(kind) || isLoose(v.kind()) {
		s.note("%s and %s are compared as they are, without wildcards, quantities and durations", source, other)
	}
	return ce.Relate(source, "==", other), nil
}

// isLoose reports whether values of a kind can be numbers or texts.
func isLoose(k ce.Kind) bool { return k == ce.KindAny || k == ce.KindIntOrString }

// equalsText compares with constant text, which may have wildcards.
func equalsText(source ce.Expression, k Value, text string, constantIsKey bool) (ce.Expression, error) {
	isString := ce.And(
		ce.Relate(ce.Function("type", source), "==", ce.Term("string")),
		scalar.Compare("==", text, source),
	)
	isNumber := equalsNumberInText(source, text, constantIsKey)
	switch k.kind() {
	case ce.KindString:
		return scalar.Compare("==", text, source), nil
	case ce.KindQuantity:
		return scalar.CompareQuantity("==", text, source), nil
	case ce.KindInt, ce.KindNumber:
		return isNumber, nil
	case ce.KindAny, ce.KindIntOrString:
		if !scalar.IsNumeric(text) && !scalar.HasWildcard(text) {
			return ce.Relate(source, "==", ce.Quote(text)), nil
		}
		return ce.Or(isNumber, isString), nil
	}
	return ce.False(), nil
}

// equalsNumberInText compares a number with constant text. Kyverno reads the value of a condition
// as a number, and its key as a duration.
func equalsNumberInText(source ce.Expression, text string, constantIsKey bool) ce.Expression {
	d, isDuration := scalar.ParseDuration(text)
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case constantIsKey && isDuration:
		return ce.Relate(source, "==", scalar.Seconds(d))
	case !constantIsKey && err == nil:
		return ce.Relate(source, "==", ce.Term(strconv.FormatInt(n, 10)))
	}
	return ce.False()
}

// equalsNumber compares with a constant number. Text equals a number only as a duration, unless
// the number is the key: Kyverno then reads the text as a number.
func equalsNumber(source ce.Expression, k, v Value, constantIsKey bool) (ce.Expression, error) {
	e, err := literalExpression(v.constant)
	if err != nil {
		return e, err
	}
	switch k.kind() {
	case ce.KindInt, ce.KindNumber, ce.KindIntOrString, ce.KindAny:
		return ce.Relate(source, "==", e), nil
	case ce.KindQuantity:
		source = ce.Function("string", source)
	case ce.KindString:
	default:
		return ce.False(), nil
	}
	n, _ := scalar.Number(v.constant)
	if constantIsKey {
		return scalar.EqualsNumber(n, source), nil
	}
	return scalar.CompareUnits("==", scalar.WholeSeconds(n), source), nil
}

// order converts GreaterThan and its relatives.
func (s *Scope) order(k Value, operator string, v Value, durations bool) (ce.Expression, error) {
	o := constantOrder{operator: operator, constant: v.constant, durations: durations}
	if k.isConstant && !v.isConstant {
		k, v = v, k
		o = constantOrder{operator: mirroredOperator(operator), constant: v.constant, durations: durations, constantIsKey: true}
	}
	source, err := k.strict()
	if err != nil {
		return source, err
	}
	if !v.isConstant {
		return orderValues(source, k, operator, v)
	}
	if o.isDuration() {
		s.noteSeconds(source, k)
	}
	return o.expression(source, k.kind()), nil
}

// noteSeconds notes that Kyverno counts the nanoseconds of a number of seconds in 64 bits.
func (s *Scope) noteSeconds(source ce.Expression, k Value) {
	switch k.kind() {
	case ce.KindInt, ce.KindNumber, ce.KindAny, ce.KindIntOrString:
		if !k.shape.IsNarrow() {
			s.note("%s above 9,223,372,036 seconds is compared as it is: Kyverno takes it for another number", source)
		}
	}
}

func orderValues(source ce.Expression, k Value, operator string, v Value) (ce.Expression, error) {
	other, err := v.strict()
	if err != nil {
		return other, err
	}
	numbers := func(k ce.Kind) bool { return k == ce.KindInt || k == ce.KindNumber }
	switch {
	case numbers(k.kind()) && numbers(v.kind()):
		return ce.Relate(source, operator, other), nil
	case k.kind() == ce.KindQuantity && v.kind() == ce.KindQuantity:
		return scalar.CompareQuantities(source, operator, other), nil
	}
	return ce.False(), leftOut("the order of %s and %s, which are not known to be numbers", source, other)
}

// constantOrder is an order of a value of the request and a constant.
type constantOrder struct {
	operator      string
	constant      any
	durations     bool // for the operators that compare durations only
	constantIsKey bool
}

// isDuration reports whether numbers are compared with a duration.
func (o constantOrder) isDuration() bool {
	text, _ := o.constant.(string)
	_, isDuration := scalar.ParseDuration(text)
	return o.durations || isDuration
}

func (o constantOrder) expression(source ce.Expression, kind ce.Kind) ce.Expression {
	switch kind {
	case ce.KindInt, ce.KindNumber:
		return o.number(source, kind)
	case ce.KindString:
		return o.text(source)
	case ce.KindQuantity:
		if text, ok := o.constant.(string); ok && !o.durations {
			return scalar.OrderQuantity(o.operator, text, source, o.constantIsKey)
		}
		return o.text(ce.Function("string", source))
	case ce.KindAny, ce.KindIntOrString:
		isType := func(t string) ce.Expression { return ce.Relate(ce.Function("type", source), "==", ce.Term(t)) }
		return ce.Or(
			ce.And(ce.Or(isType("int"), isType("double")), o.number(source, kind)),
			ce.And(isType("string"), o.text(source)),
		)
	}
	return ce.False()
}

// number orders a number and a number, or seconds.
func (o constantOrder) number(source ce.Expression, kind ce.Kind) ce.Expression {
	constant := o.constant
	if text, ok := constant.(string); ok {
		if d, ok := scalar.ParseDuration(text); ok || o.durations && text == "0" {
			return o.seconds(source, kind, d)
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || o.durations {
			return ce.False()
		}
		constant = normalizeNumbers(n)
	}
	n, ok := scalar.Number(constant)
	switch {
	case !ok:
		return ce.False()
	case o.durations:
		return o.seconds(source, kind, scalar.WholeSeconds(n))
	}
	e, _ := literalExpression(constant)
	return ce.Relate(source, o.operator, e)
}

// seconds orders a number and a duration. Only a number with a fraction has to be rounded.
func (o constantOrder) seconds(source ce.Expression, kind ce.Kind, d time.Duration) ce.Expression {
	if kind == ce.KindNumber || kind == ce.KindAny {
		return scalar.OrderSeconds(o.operator, d, source)
	}
	return ce.Relate(source, o.operator, scalar.Seconds(d))
}

// text orders text and a constant: durations, quantities, versions, and numbers.
func (o constantOrder) text(source ce.Expression) ce.Expression {
	if n, ok := scalar.Number(o.constant); ok {
		if o.durations {
			return scalar.CompareDuration(o.operator, scalar.WholeSeconds(n), source)
		}
		return scalar.OrderNumber(o.operator, n, source)
	}
	text, ok := o.constant.(string)
	switch {
	case !ok:
		return ce.False()
	case o.durations:
		d, err := time.ParseDuration(text)
		if err != nil {
			return ce.False()
		}
		return scalar.CompareDuration(o.operator, d, source)
	case scalar.IsNumeric(text):
		return scalar.Order(o.operator, text, source, o.constantIsKey)
	case scalar.IsVersion(text):
		return scalar.CompareVersion(o.operator, text, source)
	}
	return ce.False()
}
