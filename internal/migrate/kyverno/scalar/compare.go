package scalar

import (
	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

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
