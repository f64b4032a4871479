package scalar

import (
	"strconv"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Order orders text and an operand of a condition: text as durations or quantities if both are,
// and else a number and a duration, with the number in seconds. Only the key of a condition can
// be a number in text, so operandIsKey reports whether the operand is the key.
func Order(operator, operand string, v ce.Expression, operandIsKey bool) ce.Expression {
	c := newCondition(operator, operand)
	switch {
	case c.quantity == nil && c.duration != nil && !operandIsKey:
		return OrderDuration(operator, *c.duration, v)
	case c.quantity != nil && c.duration == nil && operandIsKey, operand == "0" && operandIsKey:
		return ce.Or(Compare(operator, operand, v), orderKeySeconds(c, v))
	}
	return Compare(operator, operand, v)
}

// orderKeySeconds orders durations that are no quantities and a key that is a number.
func orderKeySeconds(key textCondition, v ce.Expression) ce.Expression {
	n, err := strconv.ParseFloat(key.operand, 64)
	if err != nil {
		return ce.False()
	}
	units := ce.And(isDuration(v), compareDurations(key.operator, WholeSeconds(n), v))
	return ce.And(ce.Not(ce.Function("isQuantity", v)), units)
}

// OrderQuantity orders a quantity and an operand of a condition.
func OrderQuantity(operator, operand string, v ce.Expression, operandIsKey bool) ce.Expression {
	if newCondition(operator, operand).quantity != nil {
		return CompareQuantity(operator, operand, v)
	}
	return Order(operator, operand, ce.Function("string", v), operandIsKey)
}

// Compare compares text with an operand: as durations or quantities if both are, and else
// as text, for which only == and != have a result. It is what conditions do; text that is
// "0" is no duration there.
func Compare(operator, operand string, v ce.Expression) ce.Expression {
	c := newCondition(operator, operand)
	if operand == "0" {
		c.duration = nil
	}
	switch {
	case c.quantity == nil && c.duration != nil && operator == "!=":
		return ce.Not(CompareUnits("==", *c.duration, v))
	case c.quantity == nil && c.duration != nil:
		return CompareUnits(operator, *c.duration, v)
	case c.numeric():
		return numericText(c, v)
	}
	return compareText(c, v)
}

// CompareQuantity compares a quantity with an operand, as text if the operand is no quantity.
func CompareQuantity(operator, operand string, v ce.Expression) ce.Expression {
	v = ce.Function("string", v)
	if c := newCondition(operator, operand); c.quantity != nil {
		return compareWithQuantity(c, v)
	}
	return Compare(operator, operand, v)
}

// IsNumeric reports whether an operand is a quantity or a duration.
func IsNumeric(operand string) bool { return newCondition("==", operand).numeric() }

// IsRange reports whether an operand is a range, such as 1-10.
func IsRange(operand string) bool { return len(parseConditions(operand)) == 2 }

// InRange returns an expression for a number or text in a range.
func InRange(operand string, v ce.Expression, isNumber bool) ce.Expression {
	all := ce.True()
	for _, bound := range parseConditions(operand) {
		all = ce.And(all, boundCondition(bound, v, isNumber))
	}
	return all
}

// OutOfRange returns an expression for a number, or text that is one, outside of a range.
func OutOfRange(operand string, v ce.Expression, isNumber bool) ce.Expression {
	some := ce.False()
	for _, bound := range parseConditions(operand) {
		bound.operator = map[string]string{">=": "<", "<=": ">"}[bound.operator]
		some = ce.Or(some, boundCondition(bound, v, isNumber))
	}
	return some
}

func boundCondition(bound textCondition, v ce.Expression, isNumber bool) ce.Expression {
	if isNumber {
		return integerCondition(bound, v)
	}
	return numericText(bound, v)
}
