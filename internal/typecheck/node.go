package typecheck

import (
	"iter"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// node is a place in an object: the object itself, a field, or the elements of a list or
// a map. It has the type that a value has when an expression is evaluated. Objects come
// as JSON, so a time or a base64 text is a string there.
type node struct {
	document   *Document   // nil: not known
	definition *definition // resolved
	name       string      // the name of its type, if it is an object: Object.spec.containers
	path       string      // spec.containers[*]
	keys       []string    // by which the list, whose element it is, is merged
	depth      int
}

// maxDepth bounds lists of lists, which a schema could describe by itself.
const maxDepth = 64

// root returns the node of a kind, or of an unknown one. Its type has a name.
func root(document *Document, kind schema.GroupVersionKind, name string) node {
	if document == nil || !document.Has(kind) {
		return node{name: name}
	}
	return node{document: document, definition: document.decode(document.kinds[kind]), name: name}
}

// form is what a node is.
type form int

const (
	formAny form = iota
	formObject
	formMap
	formList
	formScalar
)

func (n node) form() form {
	switch d := n.definition; {
	case n.document == nil || n.depth > maxDepth || d.IntOrString || d.Open || d.Format == "int-or-string":
		return formAny
	case len(d.Properties) > 0:
		return formObject
	case d.AdditionalProperties != nil && d.Type == "object":
		return formMap
	case d.Type == "array" && d.Items != nil:
		return formList
	case d.Type == "string" || d.Type == "boolean" || d.Type == "integer":
		return formScalar
	}
	return formAny
}

func (n node) celType() *cel.Type {
	switch n.form() {
	case formObject:
		return cel.ObjectType(n.name)
	case formMap:
		return cel.MapType(cel.StringType, n.element().celType())
	case formList:
		return cel.ListType(n.element().celType())
	case formScalar:
		return scalars()[n.definition.Type]
	}
	return cel.DynType
}

func scalars() map[string]*cel.Type {
	return map[string]*cel.Type{"string": cel.StringType, "boolean": cel.BoolType, "integer": cel.IntType}
}

// element is the node of all elements of a list or a map. As the API server requires it
// of initialisers, its type has the name of the list or the map.
func (n node) element() node {
	def := n.definition.Items
	if n.form() == formMap {
		def = &n.definition.AdditionalProperties.definition
	}
	return node{document: n.document, definition: n.document.resolve(def), name: n.name, path: n.path + "[*]",
		keys: n.definition.MapKeys, depth: n.depth + 1}
}

// lacks returns the keys that an element of a list must have, and that are not among some fields. A key that is
// not required has a default.
func (n node) lacks(fields []string) (out []string) {
	for _, key := range n.keys {
		if slices.Contains(n.definition.Required, key) && !slices.Contains(fields, key) {
			out = append(out, key)
		}
	}
	return out
}

// field returns the node of a field. Expressions may escape the name of one.
func (n node) field(name string) (node, bool) {
	if found, ok := n.property(name); ok {
		return found, true
	}
	unescaped, ok := apiservercel.Unescape(name)
	if !ok {
		return node{}, false
	}
	return n.property(unescaped)
}

// property is field for a name that is not escaped.
func (n node) property(name string) (node, bool) {
	if n.form() != formObject {
		return node{}, false
	}
	def, ok := n.definition.Properties[name]
	if !ok {
		return node{}, false
	}
	path := name
	if n.path != "" {
		path = n.path + "." + name
	}
	return node{document: n.document, definition: n.document.resolve(def), name: n.name + "." + name, path: path, depth: n.depth + 1}, true
}

func (n node) fields() iter.Seq[string] { return maps.Keys(n.definition.Properties) }

// inner is the node itself, or the elements of nested lists and maps.
func (n node) inner() node {
	for n.form() == formList || n.form() == formMap {
		n = n.element()
	}
	return n
}
