package typecheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/ostiary/ostiary/internal/nearest"
)

// operations are those of RFC 6902.
func operations() []string { return []string{"add", "remove", "replace", "move", "copy", "test"} }

// patchOperation is an operation of a JSON patch, as far as it is written with constants.
type patchOperation struct {
	op, path, from *string
	value          ast.Expr // nil if there is none
	fields         []string
}

// checkMutation checks the operations of JSON patches and the elements of lists that an expression makes.
func (c *Checker) checkMutation(e *expression, text *cel.Ast, kind, params Kind, found *findings) {
	if text == nil {
		return
	}
	native := text.NativeRep()
	c.checkKeys(e, native.Expr(), kind, found)
	if !e.patches {
		return
	}
	ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(expr ast.Expr) {
		if expr.Kind() == ast.StructKind && expr.AsStruct().TypeName() == mutation.JSONPatchTypeName {
			c.checkOperation(e, native, operationOf(expr.AsStruct()), kind, params, found)
		}
	}))
}

func operationOf(s ast.StructExpr) patchOperation {
	var out patchOperation
	for _, f := range s.Fields() {
		field := f.AsStructField()
		out.fields = append(out.fields, field.Name())
		switch field.Name() {
		case "op":
			out.op = constant(field.Value())
		case "path":
			out.path = constant(field.Value())
		case "from":
			out.from = constant(field.Value())
		case "value":
			out.value = field.Value()
		}
	}
	return out
}

// constant is a string that is written in the expression, as one text or as a sum, nil for any other value.
func constant(e ast.Expr) *string {
	switch e.Kind() {
	case ast.LiteralKind:
		if s, ok := e.AsLiteral().(types.String); ok {
			return new(string(s))
		}
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Add {
			return nil
		}
		left, right := constant(call.Args()[0]), constant(call.Args()[1])
		if left != nil && right != nil {
			return new(*left + *right)
		}
	}
	return nil
}

func (c *Checker) checkOperation(e *expression, text *ast.AST, o patchOperation, kind, params Kind, found *findings) {
	if o.op != nil && !slices.Contains(operations(), *o.op) {
		hint := ""
		if similar := nearest.Name(*o.op, slices.Values(operations())); similar != "" {
			hint = ", did you mean " + similar + "?"
		}
		found.add(e, kind, "JSONPatch has no operation %q%s The operations are %s", *o.op, punctuate(hint), strings.Join(operations(), ", "))
		return
	}
	c.checkFields(e, o, kind, found)
	if o.from != nil {
		c.checkPointer(e, *o.from, kind, params, found)
	}
	if o.path == nil {
		return
	}
	if at, ok := c.checkPointer(e, *o.path, kind, params, found); ok && o.value != nil {
		c.checkValue(e, text, o, at, kind, found)
		checkLiteral(e, o.value, at, kind, found)
	}
}

// punctuate ends a clause with its question mark, or with a full stop.
func punctuate(hint string) string {
	if hint == "" {
		return "."
	}
	return hint
}

// checkFields warns of fields that do not exist, and of those that an operation needs.
func (c *Checker) checkFields(e *expression, o patchOperation, kind Kind, found *findings) {
	for _, name := range o.fields {
		if !slices.Contains([]string{"op", "path", "from", "value"}, name) {
			found.add(e, kind, "JSONPatch has no field %s: its fields are op, path, from, value", name)
		}
	}
	if o.op == nil {
		if !slices.Contains(o.fields, "op") {
			found.add(e, kind, "JSONPatch needs the field op: one of %s", strings.Join(operations(), ", "))
		}
		return
	}
	needs := []string{"path"}
	switch *o.op {
	case "add", "replace", "test":
		needs = append(needs, "value")
	case "move", "copy":
		needs = append(needs, "from")
	}
	for _, name := range needs {
		if !slices.Contains(o.fields, name) {
			found.add(e, kind, "the JSONPatch operation %s needs the field %s", *o.op, name)
		}
	}
}

// checkPointer returns the node at a JSON pointer. ok is false if nothing is known of it.
func (c *Checker) checkPointer(e *expression, pointer string, kind, params Kind, found *findings) (at node, ok bool) {
	if pointer == "" {
		return c.types.object, true
	}
	if !strings.HasPrefix(pointer, "/") {
		found.add(e, kind, "the path %q of JSONPatch does not begin with /", pointer)
		return node{}, false
	}
	at = c.types.object
	names := strings.Split(pointer[1:], "/")
	key := -1 // the index of the last name that is the key of a map
	for i, name := range names {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch at.form() {
		case formObject:
			next, exists := at.property(name)
			if !exists {
				found.addMissing(e, kind, params, missing{at, name})
				return node{}, false
			}
			at = next
		case formList:
			at = at.element()
		case formMap:
			key, at = i, at.element()
		case formScalar:
			found.add(e, kind, "the path %q of JSONPatch goes below %s, which is %s%s",
				pointer, at.path, cel.FormatCELType(at.celType()), escapeHint(names, key))
			return node{}, false
		case formAny:
			return node{}, false
		}
	}
	return at, true
}

// escapeHint suggests how to write the key of a map that has a slash, from an index of the names of a path.
func escapeHint(names []string, key int) string {
	if key < 0 {
		return ""
	}
	escaped := "/" + strings.Join(names[:key], "/") + "/" + strings.Join(names[key:], "~1")
	return fmt.Sprintf(": a / in a key is written as ~1, as in %q, or with jsonpatch.escapeKey", escaped)
}

// checkValue warns of a value whose type the field at the path does not take.
func (c *Checker) checkValue(e *expression, text *ast.AST, o patchOperation, at node, kind Kind, found *findings) {
	got, want := text.GetType(o.value.ID()), at.celType()
	if got == nil || isDynamic(got) || isDynamic(want) || sameForm(got, want) {
		return
	}
	found.add(e, kind, "the path %q of JSONPatch takes %s, and the value is %s", *o.path, cel.FormatCELType(want), cel.FormatCELType(got))
}

// sameForm reports whether two types have the same form in JSON. The types of elements
// and fields may differ.
func sameForm(a, b *cel.Type) bool {
	form := func(t *cel.Type) cel.Kind {
		if t.Kind() == cel.MapKind {
			return cel.StructKind
		}
		return t.Kind()
	}
	return form(a) == form(b) || a.Kind() == cel.NullTypeKind || a.Kind() == cel.OpaqueKind
}
