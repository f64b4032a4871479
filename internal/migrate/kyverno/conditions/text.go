package conditions

import (
	"fmt"
	"strconv"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Any converts a value of a policy whose texts may have variables.
func (s *Scope) Any(v any) (Value, error) {
	switch typed := v.(type) {
	case string:
		return s.Text(typed)
	case []any:
		for _, element := range typed {
			if text, ok := element.(string); ok && strings.Contains(text, "{{") {
				return s.list(typed)
			}
		}
	}
	return constantValue(normalizeNumbers(v)), nil
}

// list is a list of texts with variables.
func (s *Scope) list(elements []any) (Value, error) {
	var sources []ce.Expression
	var values []Value
	for _, element := range elements {
		v, err := s.Any(element)
		if err != nil {
			return Value{}, err
		}
		if k := v.kind(); k != ce.KindString {
			return Value{}, leftOut("a list with a variable that is not known to be text")
		}
		e, err := v.strict()
		if err != nil {
			return Value{}, err
		}
		sources, values = append(sources, e), append(values, v)
	}
	return computedValue(ce.List(sources...), ce.ShapeOfList(ce.ShapeOfKind(ce.KindString)), values...), nil
}

// Text converts a text with variables in braces. A text that is one variable has its type.
func (s *Scope) Text(text string) (Value, error) {
	parts, err := parseText(text)
	if err != nil {
		return Value{}, err
	}
	if len(parts) == 1 && parts[0].variable {
		return s.substitute(parts[0].text)
	}
	if len(parts) == 0 || len(parts) == 1 {
		return constantValue(strings.ReplaceAll(text, `\{{`, "{{")), nil
	}
	var operands, nested []Value
	var sources []string
	for _, p := range parts {
		e := ce.Quote(p.text)
		if p.variable {
			v, err := s.substitute(p.text)
			if err != nil {
				return Value{}, err
			}
			nested = append(nested, v.substituted...)
			if e, err = textOf(v); err != nil {
				return Value{}, err
			}
			operands = append(operands, v)
		}
		sources = append(sources, e.In(ce.Addition))
	}
	v := computedValue(ce.Raw(strings.Join(sources, " + "), ce.Addition), ce.ShapeOfKind(ce.KindString), operands...)
	v.substituted = nested
	return v, nil
}

// substitute converts the expression of a variable in braces. Kyverno replaces the variables within it
// before it evaluates the expression, so that it fails if one of them cannot be evaluated.
func (s *Scope) substitute(text string) (Value, error) {
	var nested []Value
	v, err := s.Collecting(&nested).braces(text)
	for _, n := range nested {
		if n.mayFail() {
			v.substituted = append(v.substituted, n)
		}
	}
	if err == nil && s.nested != nil {
		*s.nested = append(*s.nested, v)
	}
	return v, err
}

// Collecting returns a scope that adds the values of variables in texts to a list.
func (s *Scope) Collecting(list *[]Value) *Scope {
	inner := s.copied()
	inner.nested = list
	return inner
}

// braces converts the expression of a variable in braces. Kyverno replaces variables in raw
// strings before it parses the expression, so that their quotes do not end the string.
func (s *Scope) braces(text string) (Value, error) {
	const start = "'{{"
	for at := strings.Index(text, start); at >= 0; {
		end := closingBraces(text[at+1:])
		if end < 0 {
			break
		}
		inner, rest := text[at+len(start):at+1+end], text[at+1+end+2:]
		next := at + 1 + end + 2
		if strings.Contains(inner, "'") && strings.HasPrefix(rest, "'") {
			v, err := s.substitute(strings.TrimSpace(inner))
			if err != nil {
				return Value{}, err
			}
			name := "nested" + strconv.Itoa(len(s.Variables))
			s = s.With(name, v)
			text = text[:at+1] + "{{" + name + "}}" + rest
			next = len(text) - len(rest)
		}
		found := strings.Index(text[next:], start)
		if found < 0 {
			break
		}
		at = next + found
	}
	return s.JMESPath(text)
}

// textOf returns a value as a part of a text.
func textOf(v Value) (ce.Expression, error) {
	e, err := v.strict()
	if err != nil {
		return e, err
	}
	if v.isConstant {
		if text, ok := v.constant.(string); ok {
			return ce.Quote(text), nil
		}
	}
	switch v.kind() {
	case ce.KindString:
	case ce.KindInt, ce.KindBool, ce.KindIntOrString, ce.KindQuantity, ce.KindAny:
		e = ce.Function("string", e)
	default:
		return e, leftOut("a list or map in a text")
	}
	return v.orNullText(e), nil
}

// orNullText is a text of the value, or null as Kyverno writes it.
func (v Value) orNullText(text ce.Expression) ce.Expression {
	if v.when.String() == "" || v.absent != absentNull {
		return text
	}
	return ce.If(v.when, text, ce.Quote("null"))
}

type textPart struct {
	text     string
	variable bool
}

// parseText splits a text into its variables and what is between them. Braces of variables
// within a variable belong to it.
func parseText(text string) ([]textPart, error) {
	var parts []textPart
	literal := func(t string) {
		if t != "" {
			parts = append(parts, textPart{text: strings.ReplaceAll(t, `\{{`, "{{")})
		}
	}
	for {
		start := openingBraces(text)
		if start < 0 {
			literal(text)
			return parts, nil
		}
		end := closingBraces(text[start:])
		if end < 0 {
			return nil, fmt.Errorf("the variable in %q has no end: add }}", text)
		}
		literal(text[:start])
		inner := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text[start+2:start+end]), "-"))
		parts = append(parts, textPart{text: inner, variable: true})
		text = text[start+end+2:]
	}
}

// openingBraces returns the position of {{ without a backslash before it.
func openingBraces(text string) int {
	for i := 0; i+1 < len(text); i++ {
		if text[i:i+2] == "{{" && (i == 0 || text[i-1] != '\\') {
			return i
		}
	}
	return -1
}

// closingBraces returns the position of the }} that ends the variable at the beginning.
func closingBraces(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 && text[i-1] == '}' {
				return i - 1
			}
		}
	}
	return -1
}
