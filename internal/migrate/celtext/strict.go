package celtext

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// AlwaysReads reports whether each evaluation of an expression evaluates a part of it, so that a
// failure of the part is one of the expression. An expression that does not parse reads nothing.
func AlwaysReads(text, part string) bool {
	e, err := Parse(text)
	if err != nil {
		return false
	}
	p, err := Parse(part)
	return err == nil && alwaysReads(e.root, p.root)
}

func alwaysReads(n, part ast.Expr) bool {
	if sameNodes(n, part) {
		return true
	}
	reads := func(child ast.Expr) bool { return alwaysReads(child, part) }
	switch n.Kind() {
	case ast.SelectKind:
		return reads(n.AsSelect().Operand())
	case ast.ListKind:
		return slices.ContainsFunc(n.AsList().Elements(), reads)
	case ast.CallKind:
		return callReads(n.AsCall(), reads)
	case ast.MapKind, ast.StructKind, ast.ComprehensionKind, ast.IdentKind, ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	return false
}

func callReads(c ast.CallExpr, reads func(ast.Expr) bool) bool {
	args := c.Args()
	switch c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr: // one side hides a failure of the other
		return reads(args[0]) && reads(args[1])
	case operators.Conditional:
		return reads(args[0]) || reads(args[1]) && reads(args[2])
	case "has":
		return false
	}
	if len(declaredVariables(c)) > 0 { // the body of a macro is not evaluated for an empty list
		return !isBind(c) && reads(c.Target()) || isBind(c) && reads(args[1])
	}
	return c.IsMemberFunction() && reads(c.Target()) || slices.ContainsFunc(args, reads)
}

// sameNodes reports whether two nodes have the same text, except for spaces and parentheses.
func sameNodes(a, b ast.Expr) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case ast.IdentKind:
		return a.AsIdent() == b.AsIdent()
	case ast.LiteralKind:
		return a.AsLiteral().Equal(b.AsLiteral()).Value() == true && a.AsLiteral().Type() == b.AsLiteral().Type()
	case ast.SelectKind:
		s, t := a.AsSelect(), b.AsSelect()
		return s.FieldName() == t.FieldName() && s.IsTestOnly() == t.IsTestOnly() && sameNodes(s.Operand(), t.Operand())
	case ast.ListKind:
		return slices.EqualFunc(a.AsList().Elements(), b.AsList().Elements(), sameNodes)
	case ast.CallKind:
		return sameCalls(a.AsCall(), b.AsCall())
	case ast.MapKind:
		return a.AsMap().Size() == 0 && b.AsMap().Size() == 0
	case ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return false
}

func sameCalls(a, b ast.CallExpr) bool {
	return a.FunctionName() == b.FunctionName() && a.IsMemberFunction() == b.IsMemberFunction() &&
		(!a.IsMemberFunction() || sameNodes(a.Target(), b.Target())) && slices.EqualFunc(a.Args(), b.Args(), sameNodes)
}
