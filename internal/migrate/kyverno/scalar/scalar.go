// Package scalar has the rules of Kyverno for values that are no maps or lists: text with
// wildcards and operators, ranges, quantities, durations and versions. Patterns, conditions
// and the selection of objects share these rules. The package evaluates them for constants,
// and writes them in CEL for values of a request.
package scalar

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Limits of the text of one pattern.
const (
	maxText       = 2_000
	maxConditions = 200
	maxOutside    = 6
)

var (
	variablePattern  = regexp.MustCompile(`\{\{.*\}\}`)
	referencePattern = regexp.MustCompile(`\$\(.+\)`)
)

// Normalize returns a pattern as an int64, float64, bool, string or nil. The error says what is
// not converted.
func Normalize(pattern any) (any, error) {
	switch p := pattern.(type) {
	case nil, bool, int64:
		return p, nil
	case int:
		return int64(p), nil
	case float64:
		if p == math.Trunc(p) && math.Abs(p) < 1<<53 {
			return int64(p), nil
		}
		return p, nil
	case string:
		return p, checkText(p)
	}
	return nil, fmt.Errorf("a pattern cannot have a value of type %T", pattern)
}

func checkText(text string) error {
	switch {
	case variablePattern.MatchString(text):
		return fmt.Errorf(
			"the variable in the pattern %q is left out: its value may have wildcards and operators; use "+
				"deny.conditions",
			text,
		)
	case referencePattern.MatchString(text):
		return fmt.Errorf("the reference in the pattern %q is left out: write the comparison in CEL", text)
	case len(text) > maxText,
		strings.Count(text, "|")+strings.Count(text, "&") > maxConditions,
		strings.Count(text, "!-") > maxOutside:
		return fmt.Errorf(
			"the pattern has more than %d bytes, %d conditions or %d ranges: split it",
			maxText,
			maxConditions,
			maxOutside,
		)
	}
	return nil
}

// Element compiles a pattern for one element of a list, which cannot be a list.
func Element(pattern any, v ce.Expression, s ce.Shape) (ce.Expression, error) {
	switch kind := s.Kind(); kind {
	case ce.KindMap, ce.KindList:
		return ce.False(), nil
	case ce.KindAny, ce.KindNumber:
		return UntypedValue(pattern, v)
	default:
		return Value(pattern, v, kind)
	}
}

// Candidates are values of a kind that may stand for an absent one.
func Candidates(pattern any, kind ce.Kind) []any {
	if kind == ce.KindBool {
		return []any{false, true}
	}
	var texts []any
	numbers := []any{int64(0)}
	switch p := pattern.(type) {
	case int64:
		numbers = append(numbers, p, int64(1))
	case string:
		for _, c := range parseAlternatives(p)[0] {
			if n, ok := c.integer(); ok {
				numbers = append(numbers, n, n+1, n-1)
			}
			text := strings.NewReplacer("*", "", "?", "-").Replace(c.operand)
			texts = append(texts, text)
		}
	}
	switch kind {
	case ce.KindInt:
		return numbers
	case ce.KindIntOrString:
		return append(numbers, append(texts, "")...)
	case ce.KindQuantity:
		return quantityTexts(texts)
	}
	return append([]any{"", "0"}, texts...)
}

// quantityTexts are the texts that are quantities. The empty text may stand for an absent
// quantity if no text is one, as then nothing reads it as a quantity.
func quantityTexts(texts []any) []any {
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

// Literal returns a candidate as CEL.
func Literal(value any) string {
	if s, ok := value.(string); ok {
		return ce.Quote(s).String()
	}
	return fmt.Sprint(value)
}

// Value compiles a pattern for a value that is present.
func Value(pattern any, v ce.Expression, kind ce.Kind) (ce.Expression, error) {
	switch p := pattern.(type) {
	case nil:
		return zeroValue(v, kind), nil
	case bool:
		if kind != ce.KindBool {
			return ce.False(), nil
		}
		return equalsConstant(v, ce.Constant(p)), nil
	case int64:
		return integerText(p, v, kind), nil
	case float64:
		return floatText(p, v, kind), nil
	}
	text := pattern.(string)
	if kind == ce.KindBool {
		isTrue, isFalse := Matches(text, true), Matches(text, false)
		return ce.If(ce.Dynamic(v), ce.Constant(isTrue), ce.Constant(isFalse)), nil
	}
	return alternativesText(
		text,
		func(c textCondition) (ce.Expression, error) { return conditionText(c, v, kind) },
		v,
		kind == ce.KindString,
	)
}

// zeroValue compares with null, which all zero values equal.
func zeroValue(v ce.Expression, kind ce.Kind) ce.Expression {
	number, text := ce.Relate(v, "==", ce.Term("0")), ce.Relate(v, "==", ce.Quote(""))
	switch kind {
	case ce.KindBool:
		return ce.Not(v)
	case ce.KindInt:
		return number
	case ce.KindString:
		return text
	}
	return ce.Or(number, text)
}

func equalsConstant(v, constant ce.Expression) ce.Expression {
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
func alternativesText(
	text string,
	compile func(textCondition) (ce.Expression, error),
	v ce.Expression,
	merge bool,
) (ce.Expression, error) {
	var some []ce.Expression
	var literals []ce.Expression
	for _, conditions := range parseAlternatives(text) {
		if c := conditions[0]; merge && len(conditions) == 1 && c.plain("==") {
			literals = append(literals, ce.Quote(c.operand))
			continue
		}
		all, err := allConditions(conditions, compile, v, merge)
		if err != nil {
			return ce.False(), err
		}
		some = append(some, all)
	}
	return ce.Or(append([]ce.Expression{OneOf(v, literals)}, some...)...), nil
}

func allConditions(
	conditions []textCondition,
	compile func(textCondition) (ce.Expression, error),
	v ce.Expression,
	merge bool,
) (ce.Expression, error) {
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
	return ce.And(append([]ce.Expression{ce.Not(OneOf(v, excluded))}, all...)...), nil
}
