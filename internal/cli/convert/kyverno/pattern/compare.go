package pattern

import (
	ce "github.com/ostiary/ostiary/internal/cli/convert/kyverno/celtext"
)

// Compare compares text with an operand: as durations or quantities if both are, and else
// as text, for which only == and != have a result. It is what conditions do; text that is
// "0" is no duration there.
func Compare(operator, operand string, v ce.Expression) ce.Expression {
	c := newCondition(operator, operand)
	if operand == "0" {
		c.duration = nil
	}
	if c.numeric() {
		return numericText(c, v)
	}
	return textCondition(c, v)
}

// IsNumeric reports whether an operand is a quantity or a duration.
func IsNumeric(operand string) bool { return newCondition("==", operand).numeric() }

// Range returns an expression for text in a range, such as 1-10, and whether the operand is
// one.
func Range(operand string, v ce.Expression) (ce.Expression, bool) {
	bounds := conditions(operand)
	if len(bounds) != 2 {
		return ce.False, false
	}
	return ce.And(numericText(bounds[0], v), numericText(bounds[1], v)), true
}
