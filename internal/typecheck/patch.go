package typecheck

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
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

// checkPatches checks the operations of JSON patches that an expression makes.
func (c *Checker) checkPatches(e *expression, text *cel.Ast, kind, params Kind, found *findings) {
	if !e.patches || text == nil {
		return
	}
	native := text.NativeRep()
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

// constant is a string that is written in the expression, nil for any other value.
func constant(e ast.Expr) *string {
	if e.Kind() != ast.LiteralKind {
		return nil
	}
	s, ok := e.AsLiteral().(types.String)
	if !ok {
		return nil
	}
	return new(string(s))
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
	for _, name := range strings.Split(pointer[1:], "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch at.form() {
		case formObject:
			next, exists := at.property(name)
			if !exists {
				found.addMissing(e, kind, params, missing{at, name})
				return node{}, false
			}
			at = next
		case formList, formMap:
			at = at.element()
		case formScalar:
			found.add(e, kind, "the path %q of JSONPatch goes below %s, which is %s", pointer, at.path, cel.FormatCELType(at.celType()))
			return node{}, false
		case formAny:
			return node{}, false
		}
	}
	return at, true
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
