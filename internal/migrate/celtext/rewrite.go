package celtext

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// optionality says whether the value of an expression is an optional.
type optionality int

const (
	neverOptional optionality = iota
	alwaysOptional
	sometimesOptional // depends on the request
)

// WithoutPlainOrValue removes calls of orValue from values that are not optional.
// Versions of CEL before 0.29 return such a value; later ones fail. The variables are the
// expressions of variables. The error names a call whose effect depends on the request.
func WithoutPlainOrValue(text string, variables map[string]string) (string, error) {
	e, err := Parse(text)
	if err != nil {
		return text, nil //nolint:nilerr // the compiler reports it with its reason
	}
	var edits []textEdit
	var failed error
	walkNodes(e.root, nil, func(n ast.Expr, _ []string) {
		if n.Kind() != ast.CallKind || n.AsCall().FunctionName() != "orValue" || !n.AsCall().IsMemberFunction() ||
			len(n.AsCall().Args()) != 1 {
			return
		}
		switch optionalityOf(n.AsCall().Target(), variables, 0) {
		case alwaysOptional:
		case sometimesOptional:
			failed = errors.New("orValue of a value that is an optional only for some requests")
		case neverOptional:
			if found, ok := e.removalOfMethod(n, "orValue"); ok {
				edits = append(edits, found)
			} else {
				failed = errors.New("orValue of a value that is not an optional")
			}
		}
	})
	if failed != nil || len(edits) == 0 {
		return text, failed
	}
	return applyEdits(e.text, edits), nil
}

// removalOfMethod returns the edit that removes ".name(...)" from the text.
func (e *Parsed) removalOfMethod(n ast.Expr, name string) (textEdit, bool) {
	open, ok := e.openingParenthesis(n)
	if !ok {
		return textEdit{}, false
	}
	end, _, ok := e.closingParenthesis(open)
	before := strings.TrimRight(string(e.text[:open]), " \t\r\n")
	before, isName := strings.CutSuffix(before, name)
	before, isMethod := strings.CutSuffix(strings.TrimRight(before, " \t\r\n"), ".")
	if !ok || !isName || !isMethod {
		return textEdit{}, false
	}
	return textEdit{start: len([]rune(before)), end: end}, true
}

// maxVariableDepth is the maximum depth of variables that read others.
const maxVariableDepth = 100

func optionalityOf(n ast.Expr, variables map[string]string, depth int) optionality {
	switch n.Kind() {
	case ast.SelectKind:
		operand := n.AsSelect().Operand()
		if operand.Kind() == ast.IdentKind && operand.AsIdent() == "variables" {
			return optionalityOfVariable(n.AsSelect().FieldName(), variables, depth)
		}
		return optionalityOf(operand, variables, depth)
	case ast.CallKind:
		return optionalityOfCall(n.AsCall(), variables, depth)
	case ast.IdentKind, ast.LiteralKind, ast.ListKind, ast.MapKind, ast.StructKind, ast.ComprehensionKind,
		ast.UnspecifiedExprKind:
	}
	return neverOptional
}

func optionalityOfVariable(name string, variables map[string]string, depth int) optionality {
	text, ok := variables[name]
	if !ok || depth > maxVariableDepth {
		return sometimesOptional
	}
	e, err := Parse(text)
	if err != nil {
		return sometimesOptional
	}
	return optionalityOf(e.root, variables, depth+1)
}

func optionalityOfCall(c ast.CallExpr, variables map[string]string, depth int) optionality {
	args := c.Args()
	switch c.FunctionName() {
	case operators.OptSelect, operators.OptIndex, "or", "optMap", "optFlatMap", "first", "last":
		return alwaysOptional
	case operators.Index:
		return optionalityOf(args[0], variables, depth)
	case operators.Conditional:
		left, right := optionalityOf(args[1], variables, depth), optionalityOf(args[2], variables, depth)
		if left == right {
			return left
		}
		return sometimesOptional
	case "of", "none", "ofNonZeroValue":
		if c.IsMemberFunction() && c.Target().Kind() == ast.IdentKind && c.Target().AsIdent() == "optional" {
			return alwaysOptional
		}
	}
	return neverOptional
}

// WithoutBind rewrites cel.bind(name, value, expression), which the CEL of Kubernetes does
// not have, as [value].map(name, expression)[0].
func WithoutBind(text string) string {
	for range maxParsedDepth {
		e, err := Parse(text)
		if err != nil {
			return text
		}
		changed, ok := e.withoutFirstBind()
		if !ok {
			return text
		}
		text = changed
	}
	return text
}

func (e *Parsed) withoutFirstBind() (string, bool) {
	var found ast.Expr
	walkNodes(e.root, nil, func(n ast.Expr, _ []string) {
		if found == nil && n.Kind() == ast.CallKind && isBind(n.AsCall()) {
			found = n
		}
	})
	if found == nil {
		return "", false
	}
	open, ok := e.openingParenthesis(found)
	if !ok {
		return "", false
	}
	end, commas, ok := e.closingParenthesis(open)
	start, known := e.info.GetOffsetRange(found.AsCall().Target().ID())
	if !ok || !known || len(commas) != 2 {
		return "", false
	}
	part := func(from, to int) string { return strings.TrimSpace(string(e.text[from:to])) }
	text := fmt.Sprintf(
		"[%s].map(%s, %s)[0]",
		part(commas[0]+1, commas[1]),
		part(open+1, commas[0]),
		part(commas[1]+1, end-1),
	)
	return applyEdits(e.text, []textEdit{{start: int(start.Start), end: end, text: text}}), true
}

// ReplaceCalls replaces calls with other expressions. The function returns the new text of
// a call, and false to keep it.
func ReplaceCalls(text string, replace func(ParsedCall) (string, bool)) string {
	e, err := Parse(text)
	if err != nil {
		return text
	}
	var edits []textEdit
	for _, c := range e.Calls() {
		with, ok := replace(c)
		if !ok {
			continue
		}
		open, known := e.openingParenthesis(c.expr)
		if !known {
			continue
		}
		end, _, closed := e.closingParenthesis(open)
		if start, ok := e.callStart(c.expr); ok && closed {
			edits = append(edits, textEdit{start: start, end: end, text: with})
		}
	}
	return applyEdits(e.text, edits)
}

// callStart returns the offset at which a call begins whose target is an identifier, or that
// has none.
func (e *Parsed) callStart(n ast.Expr) (int, bool) {
	c := n.AsCall()
	if c.IsMemberFunction() {
		at, ok := e.info.GetOffsetRange(c.Target().ID())
		return int(at.Start), ok && c.Target().Kind() == ast.IdentKind
	}
	open, ok := e.openingParenthesis(n)
	before := strings.TrimRight(string(e.text[:open]), " \t\r\n")
	name := []rune(c.FunctionName())
	at := len([]rune(before)) - len(name)
	return at, ok && at >= 0 && slices.Equal([]rune(before)[at:], name)
}

// ReplaceFields replaces a field of a free identifier, as "exceptions.allowedImages", by
// another expression.
func ReplaceFields(text, name, field, with string) string {
	e, err := Parse(text)
	if err != nil {
		return text
	}
	var edits []textEdit
	walkNodes(e.root, nil, func(n ast.Expr, bound []string) {
		if n.Kind() != ast.SelectKind || n.AsSelect().FieldName() != field || slices.Contains(bound, name) {
			return
		}
		operand := n.AsSelect().Operand()
		if operand.Kind() != ast.IdentKind || operand.AsIdent() != name {
			return
		}
		start, ok := e.info.GetOffsetRange(operand.ID())
		if !ok {
			return
		}
		rest := string(e.text[start.Start:])
		if at := strings.Index(rest, field); at > 0 {
			edits = append(edits, textEdit{
				start: int(start.Start),
				end:   int(start.Start) + len([]rune(rest[:at])) + len([]rune(field)),
				text:  with,
			})
		}
	})
	return applyEdits(e.text, edits)
}

// QuoteText returns a text as a string of CEL.
func QuoteText(text string) string { return strconv.Quote(strings.ToValidUTF8(text, "\uFFFD")) }
