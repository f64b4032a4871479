package conditions

import (
	"slices"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// isFromParams reports whether a value depends on nothing but params, whose authors may use
// wildcards.
func (v Value) isFromParams() bool {
	switch {
	case v.isConstant:
		return true
	case v.place != nil:
		return readsOnly(v.place.Strict(), "params")
	case v.stream != nil:
		return v.stream.source.isFromParams() && (v.stream.inner == nil || v.stream.inner.source.isFromParams())
	case v.lists != nil:
		return !slices.ContainsFunc(v.lists, func(l Value) bool { return !l.isFromParams() })
	}
	return readsOnly(v.expression, "params")
}

// readsOnly reports whether an expression reads no variables besides some. The name optional
// is that of functions.
func readsOnly(e ce.Expression, names ...string) bool {
	parsed, err := ce.Parse(e.String())
	return err == nil && !slices.ContainsFunc(parsed.Free(), func(name string) bool {
		return name != "optional" && !slices.Contains(names, name)
	})
}

// shared returns an expression that several others read as a variable of the policy, unless
// it depends on an element of a list.
func (s *Scope) shared(name string, e ce.Expression) ce.Expression {
	if s.Define == nil || !readsOnly(e, "params", "object", "oldObject", "request", "variables") {
		return e
	}
	return ce.Term("variables." + s.Define(name, e.String()))
}

// Regular expressions of a JSON list of texts.
const (
	listStart = `^\s*\[`
	// textList is a list whose texts have no escapes.
	textList   = `^\s*\[\s*(?:"[^"\\]*"\s*(?:,\s*"[^"\\]*"\s*)*)?\]\s*$`
	quotedText = `"[^"]*"`
)

// textsOf returns the texts of a JSON list, or a list of the text itself. The evaluation of a
// text that begins like a list and is not one of texts without escapes fails, because it has
// no first match.
func textsOf(text ce.Expression) ce.Expression {
	whole := ce.Call(text, "findAll", ce.Quote(textList))
	quoted := ce.Call(ce.Term(whole.String()+"[0]"), "findAll", ce.Quote(quotedText))
	inner := ce.Call(ce.Term("quoted"), "substring", ce.Term("1"), ce.Term("quoted.size() - 1"))
	list := ce.Call(quoted, "map", ce.Term("quoted"), inner)
	return ce.If(isListText(text), list, ce.List(ce.Function("string", text)))
}

func isListText(text ce.Expression) ce.Expression {
	return ce.Call(text, "matches", ce.Quote(listStart))
}
