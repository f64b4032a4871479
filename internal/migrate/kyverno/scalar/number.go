package scalar

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// integerText compares with an integer, which strings can have as text.
func integerText(n int64, v ce.Expression, kind ce.Kind) ce.Expression {
	switch kind {
	case ce.KindInt:
		return ce.Relate(v, "==", ce.Term(strconv.FormatInt(n, 10)))
	case ce.KindString:
		return ce.Call(v, "matches", ce.Quote(integerPattern(n)))
	case ce.KindIntOrString, ce.KindQuantity:
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

// DecimalPattern is a regular expression for text that is a number.
const DecimalPattern = `^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$`

// floatText compares with a number that is no integer.
func floatText(n float64, v ce.Expression, kind ce.Kind) ce.Expression {
	text := ce.Term(strconv.FormatFloat(n, 'f', -1, 64))
	switch kind {
	case ce.KindString:
		return ce.And(ce.Call(v, "matches", ce.Quote(DecimalPattern)), ce.Relate(ce.Function("double", v), "==", text))
	case ce.KindIntOrString, ce.KindQuantity:
		s := ce.Function("string", v)
		return ce.And(ce.Call(s, "matches", ce.Quote(DecimalPattern)), ce.Relate(ce.Function("double", v), "==", text))
	}
	return ce.False()
}

// EqualsNumber compares text with a number.
func EqualsNumber(n float64, v ce.Expression) ce.Expression {
	if whole := int64(n); float64(whole) == n {
		return integerText(whole, v, ce.KindString)
	}
	return floatText(n, v, ce.KindString)
}

func integerCondition(c textCondition, v ce.Expression) ce.Expression {
	if n, ok := c.integer(); ok {
		return ce.Relate(v, c.operator, ce.Term(strconv.FormatInt(n, 10)))
	}
	switch {
	case c.quantity != nil:
		return compareWithQuantity(c, ce.Function("string", v))
	case c.duration != nil: // only 0 is a duration
		zero := ce.Relate(v, "==", ce.Term("0"))
		return ce.If(zero, ce.Constant(c.matches(int64(0))), ce.Constant(c.operator == "!="))
	}
	return compareText(c, ce.Function("string", v))
}

// durationPattern is a regular expression for text that Go accepts as a duration, except 0, which
// CEL does not accept without a unit.
const durationPattern = `^[-+]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

// numericText compares text as durations or quantities, if it is one.
func numericText(c textCondition, v ce.Expression) ce.Expression {
	if c.operator == "!=" {
		equal := c
		equal.operator = "=="
		return ce.Not(numericText(equal, v))
	}
	quantities := ce.And(ce.Function("isQuantity", v), compareWithQuantity(c, v))
	switch {
	case c.quantity == nil:
		return CompareDuration(c.operator, *c.duration, v)
	case c.duration == nil:
		return quantities
	}
	return ce.If(isDuration(v), compareDurations(c.operator, *c.duration, v), quantities)
}

func isDuration(v ce.Expression) ce.Expression {
	return ce.Call(v, "matches", ce.Quote(durationPattern))
}

func compareDurations(operator string, d time.Duration, v ce.Expression) ce.Expression {
	if v.IsText() {
		v = ce.Function("dyn", v) // API servers reject duration() of constant text that is none
	}
	return ce.Relate(ce.Function("duration", v), operator, ce.Function("duration", ce.Quote(d.String())))
}

// CompareDuration compares text that is a duration, also 0 without a unit.
func CompareDuration(operator string, d time.Duration, v ce.Expression) ce.Expression {
	e := ce.And(isDuration(v), compareDurations(operator, d, v))
	if holdsFor(operator, cmp.Compare(0, d)) {
		return ce.Or(ce.Relate(v, "in", ce.Term(`["0", "+0", "-0"]`)), e)
	}
	return e
}

// CompareUnits compares text that is a duration with a unit, or zero with a sign. Conditions take
// zero without a sign for a number.
func CompareUnits(operator string, d time.Duration, v ce.Expression) ce.Expression {
	e := ce.And(isDuration(v), compareDurations(operator, d, v))
	if holdsFor(operator, cmp.Compare(0, d)) {
		return ce.Or(ce.Relate(v, "in", ce.Term(signedZeros)), e)
	}
	return e
}

const signedZeros = `["+0", "-0"]`

// OrderDuration orders text and a duration. Text that is a number counts as seconds.
func OrderDuration(operator string, d time.Duration, v ce.Expression) ce.Expression {
	number := ce.Call(v, "matches", ce.Quote(DecimalPattern))
	return ce.Or(
		ce.And(isDuration(v), compareDurations(operator, d, v)),
		ce.And(number, OrderSeconds(operator, d, ce.Function("double", v))),
	)
}

// OrderSeconds orders a number of seconds and a duration. The number may have a fraction, which
// Kyverno drops, so that 3600.5 is not above 1h. The result needs no conversion to an integer,
// which fails for large numbers.
func OrderSeconds(operator string, d time.Duration, number ce.Expression) ce.Expression {
	above, limit := ">", math.Floor(d.Seconds())
	if operator == "<" || operator == ">=" {
		limit = math.Ceil(d.Seconds()) - 1
	}
	if limit >= 0 { // the numbers between the limit and the next integer are rounded down to the limit
		above, limit = ">=", limit+1
	}
	if strings.HasPrefix(operator, "<") {
		above = map[string]string{">": "<=", ">=": "<"}[above]
	}
	return ce.Relate(number, above, ce.Term(strconv.FormatFloat(limit, 'f', -1, 64)))
}

// OrderNumber orders text, which is a number or a duration, and a number, which counts as whole
// seconds beside a duration.
func OrderNumber(operator string, n float64, v ce.Expression) ce.Expression {
	number := ce.And(
		ce.Call(v, "matches", ce.Quote(DecimalPattern)),
		ce.Relate(ce.Function("double", v), operator, ce.Term(strconv.FormatFloat(n, 'f', -1, 64))),
	)
	d := WholeSeconds(n)
	if d != 0 || n == 0 { // zero with a sign is ordered alike as a number
		return ce.Or(ce.And(isDuration(v), compareDurations(operator, d, v)), number)
	}
	unsigned := ce.Not(ce.Relate(v, "in", ce.Term(signedZeros)))
	return ce.Or(CompareUnits(operator, d, v), ce.And(unsigned, number))
}

func compareWithQuantity(c textCondition, v ce.Expression) ce.Expression {
	sign := ce.Call(ce.Function("quantity", v), "compareTo", ce.Function("quantity", ce.Quote(c.operand)))
	return ce.Relate(sign, c.operator, ce.Term("0"))
}

// Number returns a constant that is a number.
func Number(constant any) (float64, bool) {
	switch n := constant.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// ParseDuration parses a duration. The text 0 is none.
func ParseDuration(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && text != "0"
}

// Seconds returns a duration as a number of seconds.
func Seconds(d time.Duration) ce.Expression {
	return ce.Term(strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
}

// WholeSeconds returns a number of seconds as a duration. Kyverno drops the fraction.
func WholeSeconds(n float64) time.Duration { return time.Duration(math.Trunc(n)) * time.Second }

// CompareQuantities compares two quantities of a request, which can be numbers or text.
func CompareQuantities(source ce.Expression, operator string, other ce.Expression) ce.Expression {
	quantity := func(e ce.Expression) ce.Expression { return ce.Function("quantity", ce.Function("string", e)) }
	return ce.Relate(ce.Call(quantity(source), "compareTo", quantity(other)), operator, ce.Term("0"))
}

// IsQuantity reports whether a constant is a quantity: text that is one, or no text.
func IsQuantity(constant any) bool {
	text, ok := constant.(string)
	_, err := resource.ParseQuantity(text)
	return !ok || err == nil
}

// versionPattern matches semantic versions.
var versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)

// IsVersion reports whether text is a semantic version.
func IsVersion(text string) bool { return versionPattern.MatchString(text) }

// CompareVersion compares text that is a semantic version with another one.
func CompareVersion(operator, version string, v ce.Expression) ce.Expression {
	parse := func(e ce.Expression) ce.Expression { return ce.Function("semver", e) }
	sign := ce.Call(parse(v), "compareTo", parse(ce.Quote(version)))
	return ce.And(ce.Function("isSemver", v), ce.Relate(sign, operator, ce.Term("0")))
}
