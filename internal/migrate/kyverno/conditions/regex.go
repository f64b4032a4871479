package conditions

import (
	"regexp/syntax"
	"slices"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// replaceRegex replaces what a constant regular expression matches. The CEL of Kubernetes has no such
// function, but some expressions have an exact counterpart.
func replaceRegex(c functionCall) (Value, error) {
	pattern, isPattern := c.arguments[0].constant.(string)
	with, isText := c.arguments[2].constant.(string)
	isTemplate := c.name == "regex_replace_all" && (!isText || strings.Contains(with, "$"))
	text, isTextual := c.text(1)
	if !isPattern || !isTextual || isTemplate || c.arguments[2].kind() != ce.KindString {
		return c.leftOut()
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return c.leftOut()
	}
	r := replacement{pattern: pattern, with: c.sources[2]}
	var e ce.Expression
	switch parts := partsOf(parsed); {
	case isLiteral(parsed):
		e = ce.Call(text, "replace", ce.Quote(string(parsed.Rune)), c.sources[2])
	case parts[0].Op == syntax.OpBeginText:
		e = r.first(text)
	case parts[len(parts)-1].Op == syntax.OpEndText:
		e = r.last(text)
	case isLineFrom(parts):
		line := c.scope.variable(Value{})
		lines := ce.Call(ce.Call(text, "split", ce.Term(`"\n"`)), "map", ce.Term(line), r.last(ce.Term(line)))
		e = ce.Call(lines, "join", ce.Term(`"\n"`))
	default:
		return c.leftOut()
	}
	return c.result(e, ce.KindString)
}

// partsOf returns the parts of a concatenation, or the expression itself.
func partsOf(e *syntax.Regexp) []*syntax.Regexp {
	if e.Op == syntax.OpConcat {
		return e.Sub
	}
	return []*syntax.Regexp{e}
}

func isLiteral(e *syntax.Regexp) bool {
	return e.Op == syntax.OpLiteral && e.Flags&syntax.FoldCase == 0 && len(e.Rune) > 0
}

// isRestOfLine reports whether an expression is ".*".
func isRestOfLine(e *syntax.Regexp) bool {
	return e.Op == syntax.OpStar && e.Flags&syntax.NonGreedy == 0 && e.Sub[0].Op == syntax.OpAnyCharNotNL
}

// isLineFrom reports whether an expression matches from a text to the end of its line.
func isLineFrom(parts []*syntax.Regexp) bool {
	return len(parts) == 2 && isLiteral(parts[0]) && isRestOfLine(parts[1]) && !slices.Contains(parts[0].Rune, '\n')
}

// replacement replaces the only match of an expression in a text.
type replacement struct {
	pattern string
	with    ce.Expression
}

// first replaces a match at the beginning of a text.
func (r *replacement) first(text ce.Expression) ce.Expression {
	rest := ce.Call(text, "substring", ce.Call(r.match(text), "size"))
	return r.ifMatches(text, ce.Raw(r.with.In(ce.Addition)+" + "+rest.String(), ce.Addition))
}

// last replaces a match at the end of a text.
func (r *replacement) last(text ce.Expression) ce.Expression {
	length := ce.Raw(ce.Call(text, "size").String()+" - "+ce.Call(r.match(text), "size").String(), ce.Addition)
	kept := ce.Call(text, "substring", ce.Term("0"), length)
	return r.ifMatches(text, ce.Raw(kept.String()+" + "+r.with.In(ce.Multiplication), ce.Addition))
}

func (r *replacement) match(text ce.Expression) ce.Expression {
	return ce.Call(text, "find", ce.Quote(r.pattern))
}

func (r *replacement) ifMatches(text, replaced ce.Expression) ce.Expression {
	return ce.If(ce.Call(text, "matches", ce.Quote(r.pattern)), replaced, text)
}
