package scalar

import (
	"fmt"
	"strconv"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// TypeIs tests the type of a value: list, map, string and so on.
func TypeIs(v ce.Expression, types ...string) ce.Expression {
	some := make([]ce.Expression, len(types))
	for i, t := range types {
		some[i] = ce.Relate(ce.Function("type", v), "==", ce.Term(t))
	}
	return ce.Or(some...)
}

// isScalar tests that a value is text, a number or a boolean.
func isScalar(v ce.Expression) ce.Expression {
	return ce.And(ce.Relate(v, "!=", ce.Term("null")), ce.Not(TypeIs(v, "map")), ce.Not(TypeIs(v, "list")))
}

// UntypedValue compiles a pattern for a value that is present and of which nothing is known.
func UntypedValue(pattern any, v ce.Expression) (ce.Expression, error) {
	number := func(text string) ce.Expression { return ce.Relate(v, "==", ce.Term(text)) }
	switch p := pattern.(type) {
	case nil:
		return ce.Or(number("null"), number("false"), number("0"), number(`""`)), nil
	case bool:
		return ce.Relate(v, "==", ce.Constant(p)), nil
	case int64:
		return ce.Or(
			number(strconv.FormatInt(p, 10)),
			ce.And(TypeIs(v, "string"), integerText(p, v, ce.KindString)),
		), nil
	case float64:
		return ce.Or(
			number(strconv.FormatFloat(p, 'f', -1, 64)),
			ce.And(TypeIs(v, "string"), floatText(p, v, ce.KindString)),
		), nil
	}
	compile := func(c textCondition) (ce.Expression, error) { return untypedCondition(c, v) }
	return alternativesText(pattern.(string), compile, v, false)
}

func untypedCondition(c textCondition, v ce.Expression) (ce.Expression, error) {
	switch {
	case c.numeric():
		return untypedNumeric(c, v), nil
	case c.ordered():
		return ce.False(), nil
	}
	match, err := untypedMatch(c.operand, v)
	if c.operator == "!=" {
		match = ce.And(isScalar(v), ce.Not(match))
	}
	return match, err
}

// untypedMatch compares a value as text. Kyverno writes a number with a fraction as
// 1.5E+00.
func untypedMatch(operand string, v ce.Expression) (ce.Expression, error) {
	var some []ce.Expression
	for _, b := range []bool{true, false} {
		if MatchesWildcard(operand, strconv.FormatBool(b)) {
			some = append(some, ce.Relate(v, "==", ce.Constant(b)))
		}
	}
	number := strings.Trim(operand, "0123456789.E+-*?") == ""
	switch inner := strings.Trim(operand, "*"); {
	case !HasWildcard(operand):
		some = append(some, ce.Relate(v, "==", ce.Quote(operand)))
	case inner == "":
		return isScalar(v), nil
	case inner == "?" && inner != operand:
		return ce.And(isScalar(v), ce.Relate(v, "!=", ce.Quote(""))), nil
	case number:
		return ce.False(), fmt.Errorf(
			"the pattern %q is left out because the field has no known type: CEL does not write numbers with a "+
				"fraction as Kyverno does",
			operand,
		)
	default:
		some = append(some, ce.And(TypeIs(v, "string"), MatchWildcard(operand, v)))
	}
	return ce.Or(some...), nil
}

func untypedNumeric(c textCondition, v ce.Expression) ce.Expression {
	equal := c
	types := []string{"string", "int", "double"}
	if c.operator == "!=" {
		equal.operator = "=="
	}
	match := numericText(equal, ce.Function("string", v))
	if c.operator == "!=" {
		match = ce.Not(match)
		types = append(types, "bool")
	}
	found := ce.And(TypeIs(v, types...), match)
	if c.matches(nil) {
		return ce.Or(ce.Relate(v, "==", ce.Term("null")), found)
	}
	return found
}
