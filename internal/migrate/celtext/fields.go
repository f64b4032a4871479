package celtext

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Fields returns the paths that an expression reads from a free identifier, of at most two
// fields, each once, in the order of the text. The longest path counts: "metadata.name" is
// not also "metadata". An expression that does not parse reads nothing.
func Fields(text, name string) (out []string) {
	e, err := Parse(text)
	if err != nil {
		return nil
	}
	walkNodes(e.root, nil, func(n ast.Expr, bound []string) {
		path, ok := fieldPath(n, name)
		if !ok || len(path) == 0 || slices.Contains(bound, name) {
			return
		}
		path = path[:min(len(path), 2)]
		field := path[0]
		if len(path) == 2 {
			field += "." + path[1]
		}
		if !slices.ContainsFunc(out, func(known string) bool {
			return known == field || len(path) == 1 && len(known) > len(field) && known[:len(field)+1] == field+"."
		}) {
			out = append(out, field)
		}
	})
	return out
}

// fieldPath returns the fields that an expression selects from an identifier, and whether it
// does only that.
func fieldPath(n ast.Expr, name string) ([]string, bool) {
	switch n.Kind() {
	case ast.IdentKind:
		return nil, n.AsIdent() == name
	case ast.SelectKind:
		path, ok := fieldPath(n.AsSelect().Operand(), name)
		return append(path, n.AsSelect().FieldName()), ok
	case ast.CallKind:
		c := n.AsCall()
		if len(c.Args()) != 2 || !slices.Contains(
			[]string{operators.Index, operators.OptIndex, operators.OptSelect},
			c.FunctionName(),
		) || c.Args()[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		field, isString := c.Args()[1].AsLiteral().(types.String)
		path, ok := fieldPath(c.Args()[0], name)
		return append(path, string(field)), ok && isString
	case ast.ComprehensionKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
	}
	return nil, false
}
