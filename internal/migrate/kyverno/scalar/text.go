package scalar

import (
	"regexp"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// conditionText compiles a condition for a value of a known type.
func conditionText(c textCondition, v ce.Expression, kind ce.Kind) (ce.Expression, error) {
	switch {
	case kind == ce.KindInt:
		return integerCondition(c, v), nil
	case kind != ce.KindString:
		v = ce.Function("string", v)
	}
	if kind == ce.KindQuantity && c.quantity != nil {
		return compareWithQuantity(c, v), nil
	}
	if c.numeric() {
		return numericText(c, v), nil
	}
	return compareText(c, v), nil
}

func compareText(c textCondition, v ce.Expression) ce.Expression {
	switch c.operator {
	case "==":
		return MatchWildcard(c.operand, v)
	case "!=":
		return ce.Not(MatchWildcard(c.operand, v))
	}
	return ce.False()
}

// MatchWildcard returns an expression for text that matches a pattern with wildcards.
func MatchWildcard(pattern string, v ce.Expression) ce.Expression {
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

// MatchPattern returns an expression for text that matches a pattern with wildcards that is
// known only when the policy is evaluated.
func MatchPattern(pattern, text ce.Expression) ce.Expression {
	literal := ce.Call(pattern, "replace", ce.Quote(`\E`), ce.Quote(`\E\\E\Q`))
	literal = ce.Call(literal, "replace", ce.Quote("*"), ce.Quote(`\E.*\Q`))
	literal = ce.Call(literal, "replace", ce.Quote("?"), ce.Quote(`\E.\Q`))
	regex := ce.Quote(`(?s)^\Q`).String() + " + " + literal.String() + " + " + ce.Quote(`\E$`).String()
	return ce.Call(text, "matches", ce.Raw(regex, ce.Addition))
}

// OneOf returns an expression for a value that equals one of some literals; false without any.
func OneOf(v ce.Expression, literals []ce.Expression) ce.Expression {
	switch len(literals) {
	case 0:
		return ce.False()
	case 1:
		return ce.Relate(v, "==", literals[0])
	}
	return ce.Relate(v, "in", ce.List(literals...))
}

// plain reports whether the condition compares with a literal.
func (c textCondition) plain(operator string) bool {
	return c.operator == operator && !c.numeric() && !HasWildcard(c.operand)
}

// Null is a default of any type for the type checker.
const Null = "dyn(null)"

// MatchesWildcard reports whether text matches a pattern in which * stands for any text and ? for
// one character.
func MatchesWildcard(pattern, text string) bool {
	p, t := []rune(pattern), []rune(text)
	star, mark := -1, 0 // the last *, and where its text ends
	i, j := 0, 0
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(string(p[i:]), "*") == ""
}

// HasWildcard reports whether a text has * or ?.
func HasWildcard(text string) bool { return strings.ContainsAny(text, "*?") }

// MatchAny returns an expression for text that matches one of some patterns with wildcards;
// false without patterns.
func MatchAny(v ce.Expression, patterns []string) ce.Expression {
	var literals, others []ce.Expression
	for _, p := range patterns {
		if HasWildcard(p) {
			others = append(others, MatchWildcard(p, v))
		} else {
			literals = append(literals, ce.Quote(p))
		}
	}
	return ce.Or(append([]ce.Expression{OneOf(v, literals)}, others...)...)
}
