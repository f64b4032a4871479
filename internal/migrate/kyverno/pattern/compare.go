package pattern

import (
	ce "github.com/ostiary/ostiary/internal/migrate/kyverno/celtext"
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
	return textCondition(c, v)
}

// CompareQuantity compares a quantity with an operand. It returns false if the operand is
// none.
func CompareQuantity(operator, operand string, v ce.Expression) (ce.Expression, bool) {
	c := newCondition(operator, operand)
	if c.quantity == nil {
		return ce.False(), false
	}
	return compareQuantities(c, v), true
}

// IsNumeric reports whether an operand is a quantity or a duration.
func IsNumeric(operand string) bool { return newCondition("==", operand).numeric() }

// IsRange reports whether an operand is a range, such as 1-10.
func IsRange(operand string) bool { return len(conditions(operand)) == 2 }

// Range returns an expression for a number or text in a range.
func Range(operand string, v ce.Expression, isNumber bool) ce.Expression {
	all := ce.True()
	for _, bound := range conditions(operand) {
		if isNumber {
			all = ce.And(all, integerCondition(bound, v))
		} else {
			all = ce.And(all, numericText(bound, v))
		}
	}
	return all
}
