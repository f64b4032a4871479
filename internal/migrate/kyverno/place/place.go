// Package place has the values that expressions read: a variable, or what is below it, with
// what is known about its presence and type.
package place

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/migrate/kyverno/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/shape"
)

// Place is a value that expressions read.
type Place struct {
	Shape shape.Shape
	// Members are places of members that are not fields of the value.
	Members map[string]Place

	source   celtext.Expression // of the value, or of an optional value
	optional bool
	strict   string // the source that fails if the value is absent
	parent   string // the map that has the value, if that is always present
	name     string
	root     bool // of an object
}

// Of returns the place of a variable.
func Of(source string, s shape.Shape) Place {
	return Place{source: celtext.Term(source), strict: source, Shape: s}
}

// Object returns the place of an object in a request, which has metadata.
func Object(source string, s shape.Shape) Place {
	p := Of(source, s)
	p.root = true
	return p
}

// Name returns the name of the field, empty if it has none.
func (p Place) Name() string { return p.name }

// Field returns the place of a member of a map.
func (p Place) Field(name string) Place {
	if member, ok := p.Members[name]; ok {
		return member
	}
	child := Place{Shape: p.Shape.Field(name), name: name}
	child.strict = p.strict + "[" + celtext.Quote(name).String() + "]"
	if celtext.IsIdentifier(name) {
		child.strict = p.strict + "." + name
	}
	if p.root && name == "metadata" && child.Shape.Kind() == shape.Any {
		child.Shape = shape.Type[metav1.ObjectMeta]()
	}
	if p.root && (name == "metadata" || name == "spec" && child.Shape.IsStruct()) { // API servers always send them
		child.source = celtext.Term(child.strict)
		return child
	}
	child.optional = true
	if !p.optional {
		child.parent = p.source.In(celtext.Primary)
	}
	if celtext.IsIdentifier(name) {
		child.source = celtext.Term(p.source.In(celtext.Primary) + ".?" + name)
	} else {
		child.source = celtext.Term(p.source.In(celtext.Primary) + "[?" + celtext.Quote(name).String() + "]")
	}
	return child
}

// Index returns the place of an element of a list.
func (p Place) Index(index string) Place {
	return Place{
		Shape: p.Shape.Element(), optional: true, strict: p.strict + "[" + index + "]",
		source: celtext.Term(p.source.In(celtext.Primary) + "[?" + index + "]"),
	}
}

// Optional reports whether the value can be absent.
func (p Place) Optional() bool { return p.optional }

// Source returns the source of the value, or of the optional value.
func (p Place) Source() celtext.Expression { return p.source }

// Present returns an expression that is true if the value is present.
func (p Place) Present() celtext.Expression {
	switch {
	case !p.optional:
		return celtext.True()
	case p.parent != "" && celtext.IsIdentifier(p.name):
		return celtext.Term("has(" + p.parent + "." + p.name + ")")
	case p.parent != "":
		return celtext.Relate(celtext.Quote(p.name), "in", celtext.Term(p.parent))
	}
	return celtext.Call(p.source, "hasValue")
}

// Value returns the value, which must be present.
func (p Place) Value() celtext.Expression {
	switch {
	case !p.optional:
		return p.source
	case p.parent != "" && celtext.IsIdentifier(p.name):
		return celtext.Term(p.parent + "." + p.name)
	case p.parent != "":
		return p.typed(celtext.Term(p.parent + "[" + celtext.Quote(p.name).String() + "]"))
	}
	return p.typed(celtext.Call(p.source, "value"))
}

// Strict returns the value. Its evaluation fails if the value is absent.
func (p Place) Strict() celtext.Expression { return p.typed(celtext.Term(p.strict)) }

// typed makes an element of a map or list a value of any type. The type checker takes it
// for a value of the first type that a function accepts.
func (p Place) typed(e celtext.Expression) celtext.Expression {
	if p.optional && !celtext.IsIdentifier(p.name) {
		return celtext.Function("dyn", e)
	}
	return e
}

// Or returns the value, or a default if it is absent.
func (p Place) Or(absent string) celtext.Expression {
	if !p.optional {
		return p.source
	}
	return celtext.Call(p.source, "orValue", celtext.Term(absent))
}
