package typecheck

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// checkKeys warns of elements of lists that an initialiser makes without a key of the list. Such an element is
// added beside those that it is meant for, and API servers then reject the object without the name of the policy.
func (c *Checker) checkKeys(e *expression, expr ast.Expr, kind Kind, found *findings) {
	ast.PostOrderVisit(expr, ast.NewExprVisitor(func(expr ast.Expr) {
		if expr.Kind() != ast.StructKind {
			return
		}
		made := expr.AsStruct()
		var fields []string
		for _, f := range made.Fields() {
			field := f.AsStructField()
			fields = append(fields, field.Name())
			if at, ok := c.types.at(made.TypeName() + "." + field.Name()); ok {
				checkLiteral(e, field.Value(), at, kind, found)
			}
		}
		if list, ok := c.types.at(made.TypeName()); ok && list.form() == formList {
			checkElement(e, fields, list.element(), kind, found)
		}
	}))
}

// checkLiteral checks lists and maps that are written in an expression, as the value of a node.
func checkLiteral(e *expression, value ast.Expr, at node, kind Kind, found *findings) {
	switch {
	case value.Kind() == ast.ListKind && at.form() == formList:
		for _, element := range value.AsList().Elements() {
			checkLiteral(e, element, at.element(), kind, found)
		}
	case value.Kind() == ast.MapKind && at.form() == formObject:
		var fields []string
		for _, entry := range value.AsMap().Entries() {
			name := constant(entry.AsMapEntry().Key())
			if name == nil {
				return // the fields are not known
			}
			fields = append(fields, *name)
			if next, ok := at.property(*name); ok {
				checkLiteral(e, entry.AsMapEntry().Value(), next, kind, found)
			}
		}
		checkElement(e, fields, at, kind, found)
	}
}

// checkElement warns of an element of a list with some fields, if a key of the list is not among them.
func checkElement(e *expression, fields []string, at node, kind Kind, found *findings) {
	lacking := at.lacks(fields)
	if len(lacking) == 0 {
		return
	}
	misspelt := slices.ContainsFunc(fields, func(name string) bool {
		_, ok := at.field(name)
		return !ok
	})
	if !misspelt { // otherwise the key can be the field that does not exist
		found.add(e, kind, "an element of %s does not have the key %s, by which the list is merged: add it",
			strings.TrimSuffix(at.path, "[*]"), strings.Join(lacking, " and "))
	}
}
