package celtext

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/parser"
)

const (
	// maxParsedSize is the maximum number of characters of an expression; Ostiary allows fewer.
	maxParsedSize = 100_000
	// maxParsedDepth is the maximum depth of an expression.
	maxParsedDepth = 250
)

// Parsed is a parsed expression. Macros stay calls, so that what is rewritten has the text of
// its author elsewhere.
type Parsed struct {
	text []rune
	root ast.Expr
	info *ast.SourceInfo
}

// Parse parses an expression.
func Parse(text string) (*Parsed, error) {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true),
		parser.MaxRecursionDepth(maxParsedDepth), parser.ExpressionSizeCodePointLimit(maxParsedSize))
	if err != nil {
		return nil, fmt.Errorf("making a parser: %w", err)
	}
	parsed, errs := p.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return nil, fmt.Errorf("parsing the expression: %s", strings.TrimSpace(errs.GetErrors()[0].Message))
	}
	return &Parsed{text: []rune(text), root: parsed.Expr(), info: parsed.SourceInfo()}, nil
}

// Reads reports whether an expression has a free identifier. An expression that does not
// parse reads nothing.
func Reads(text, name string) bool {
	e, err := Parse(text)
	return err == nil && slices.Contains(e.Free(), name)
}

// Free returns the identifiers that the expression does not declare itself, each once, in
// the order of the text.
func (e *Parsed) Free() (out []string) {
	walkNodes(e.root, nil, func(n ast.Expr, bound []string) {
		if n.Kind() == ast.IdentKind && !slices.Contains(bound, n.AsIdent()) && !slices.Contains(out, n.AsIdent()) {
			out = append(out, n.AsIdent())
		}
	})
	return out
}

// ParsedCall is a call of a function. The name of one in a namespace is "namespace.name", where
// the namespace is a free identifier.
type ParsedCall struct {
	Name string
	// Arguments are the constants among the arguments; nil stands for others.
	Arguments []any

	expr ast.Expr
}

// Calls returns all calls of functions and methods, operators excepted.
func (e *Parsed) Calls() (out []ParsedCall) {
	walkNodes(e.root, nil, func(n ast.Expr, bound []string) {
		if n.Kind() != ast.CallKind || isOperator(n.AsCall().FunctionName()) {
			return
		}
		out = append(out, newParsedCall(n, bound))
	})
	return out
}

func newParsedCall(n ast.Expr, bound []string) ParsedCall {
	c := n.AsCall()
	call := ParsedCall{Name: c.FunctionName(), expr: n}
	if c.IsMemberFunction() {
		call.Name = "." + call.Name
		if t := c.Target(); t.Kind() == ast.IdentKind && !slices.Contains(bound, t.AsIdent()) {
			call.Name = t.AsIdent() + call.Name
		}
	}
	for _, a := range c.Args() {
		var constant any
		if a.Kind() == ast.LiteralKind {
			constant = a.AsLiteral().Value()
		}
		call.Arguments = append(call.Arguments, constant)
	}
	return call
}

// walkNodes calls visit for each node with the variables that macros around it declare.
func walkNodes(n ast.Expr, bound []string, visit func(n ast.Expr, bound []string)) {
	visit(n, bound)
	switch n.Kind() {
	case ast.CallKind:
		walkCall(n.AsCall(), bound, visit)
	case ast.ListKind:
		for _, c := range n.AsList().Elements() {
			walkNodes(c, bound, visit)
		}
	case ast.MapKind:
		for _, entry := range n.AsMap().Entries() {
			walkNodes(entry.AsMapEntry().Key(), bound, visit)
			walkNodes(entry.AsMapEntry().Value(), bound, visit)
		}
	case ast.SelectKind:
		walkNodes(n.AsSelect().Operand(), bound, visit)
	case ast.StructKind:
		for _, f := range n.AsStruct().Fields() {
			walkNodes(f.AsStructField().Value(), bound, visit)
		}
	case ast.ComprehensionKind, ast.IdentKind, ast.LiteralKind, ast.UnspecifiedExprKind:
	}
}

func walkCall(c ast.CallExpr, bound []string, visit func(n ast.Expr, bound []string)) {
	if c.IsMemberFunction() {
		walkNodes(c.Target(), bound, visit)
	}
	args := c.Args()
	declared := declaredVariables(c)
	if isBind(c) {
		walkNodes(args[1], bound, visit)
		args = args[2:]
	} else {
		args = args[len(declared):]
	}
	inner := append(slices.Clip(bound), declared...)
	for _, a := range args {
		walkNodes(a, inner, visit)
	}
}

// declaredVariables returns the variables that a macro declares.
func declaredVariables(c ast.CallExpr) (out []string) {
	args := c.Args()
	ident := func(i int) bool { return i < len(args) && args[i].Kind() == ast.IdentKind }
	if !c.IsMemberFunction() || !ident(0) || len(args) < 2 {
		return nil
	}
	switch c.FunctionName() {
	case "all", "exists", "exists_one", "existsOne", "transformList", "transformMap", "transformMapEntry":
		out = append(out, args[0].AsIdent())
		if len(args) > 2 && ident(1) { // the key and the value
			out = append(out, args[1].AsIdent())
		}
	case "map", "filter", "optMap", "optFlatMap", "sortBy":
		out = append(out, args[0].AsIdent())
	case "bind":
		if isBind(c) {
			out = append(out, args[0].AsIdent())
		}
	}
	return out
}

// isBind reports whether a call is cel.bind(name, value, expression).
func isBind(c ast.CallExpr) bool {
	args := c.Args()
	return c.IsMemberFunction() && c.FunctionName() == "bind" && c.Target().Kind() == ast.IdentKind &&
		c.Target().AsIdent() == "cel" &&
		len(args) == 3 && args[0].Kind() == ast.IdentKind
}

// textEdit replaces a part of a text.
type textEdit struct {
	start, end int
	text       string
}

// applyEdits applies edits. One within another is dropped.
func applyEdits(text []rune, edits []textEdit) string {
	slices.SortFunc(
		edits,
		func(a, b textEdit) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) },
	)
	var out strings.Builder
	at := 0
	for _, e := range edits {
		if e.start < at {
			continue
		}
		out.WriteString(string(text[at:e.start]) + e.text)
		at = e.end
	}
	out.WriteString(string(text[at:]))
	return out.String()
}

// openingParenthesis returns the offset of the parenthesis of a call.
func (e *Parsed) openingParenthesis(n ast.Expr) (int, bool) {
	at, ok := e.info.GetOffsetRange(n.ID())
	if !ok {
		return 0, false
	}
	start := int(at.Start)
	for start < len(e.text) && e.text[start] != '(' {
		start++
	}
	return start, start < len(e.text)
}

// closingParenthesis returns the offset after the parenthesis that matches the one at an offset, and the
// offsets of the commas between.
func (e *Parsed) closingParenthesis(open int) (end int, commas []int, ok bool) {
	depth := 0
	for i := open; i < len(e.text); i++ {
		switch e.text[i] {
		case '"', '\'':
			i = e.skipString(i)
		case '/':
			if i+1 < len(e.text) && e.text[i+1] == '/' {
				for i < len(e.text) && e.text[i] != '\n' {
					i++
				}
			}
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				return i + 1, commas, true
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		}
	}
	return 0, nil, false
}

// skipString returns the offset of the last quote of the string that begins at an offset.
func (e *Parsed) skipString(start int) int {
	quote := string(e.text[start])
	raw := start > 0 && strings.ContainsRune("rR", e.text[start-1])
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(string(e.text[start:min(start+3, len(e.text))]), triple) {
		quote = triple
	}
	for i := start + len(quote); i < len(e.text); i++ {
		switch {
		case e.text[i] == '\\' && !raw:
			i++
		case string(e.text[i:min(i+len(quote), len(e.text))]) == quote:
			return i + len(quote) - 1
		}
	}
	return len(e.text)
}

// isOperator reports whether a function is an operator, whose name no author can write.
func isOperator(name string) bool {
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, "@") || strings.HasPrefix(name, "!") ||
		strings.HasPrefix(name, "-")
}
