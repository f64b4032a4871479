package celtext

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Place is a value that expressions read.
type Place struct {
	Shape Shape
	// Members are places of members that are not fields of the value.
	Members map[string]Place

	source   Expression // of the value, or of an optional value
	optional bool
	strict   string // the source that fails if the value is absent
	parent   string // the map that has the value, if that is always present
	name     string
	root     bool       // of an object
	nullable bool       // the object may be null
	nullList bool       // a list that API servers send as null if it is empty, such as the rules of a Role
	guard    Expression // false if the value is null
}

// VariablePlace returns the place of a variable.
func VariablePlace(source string, s Shape) Place {
	return Place{source: Term(source), strict: source, Shape: s}
}

// ObjectPlace returns the place of an object in a request, which has metadata.
func ObjectPlace(source string, s Shape) Place {
	p := VariablePlace(source, s)
	p.root = true
	return p
}

// NullableObjectPlace returns the place of an object that some requests do not have, such as
// the old object of a CREATE.
func NullableObjectPlace(source string, s Shape) Place {
	p := ObjectPlace(source, s)
	p.nullable, p.guard = true, Relate(Term(source), "!=", Term("null"))
	return p
}

// Guard returns an expression that is false if the value is null because the object is, or
// because a list has too few elements. Its evaluation fails if the list is absent.
func (p Place) Guard() Expression {
	if p.guard.String() == "" {
		return True()
	}
	return p.guard
}

// Name returns the name of the field, empty if it has none.
func (p Place) Name() string { return p.name }

// Field returns the place of a member of a map.
func (p Place) Field(name string) Place {
	if member, ok := p.Members[name]; ok {
		return member
	}
	child := Place{Shape: p.Shape.Field(name), name: name, guard: p.guard}
	child.strict = p.strict + "[" + Quote(name).String() + "]"
	if IsIdentifier(name) {
		child.strict = p.strict + "." + name
	}
	if p.root && name == "metadata" && child.Shape.Kind() == KindAny {
		child.Shape = ShapeOfType[metav1.ObjectMeta]()
	}
	sent := name == "metadata" || name == "spec" && child.Shape.IsStruct() // always, by API servers
	if p.root && !p.nullable && sent {
		child.source = Term(child.strict)
		return child
	}
	child.optional, child.nullList = true, p.root && p.Shape.sendsNull(name)
	if !p.optional {
		child.parent = p.source.In(Primary)
	}
	if IsIdentifier(name) {
		child.source = Term(p.source.In(Primary) + ".?" + name)
	} else {
		child.source = Term(p.source.In(Primary) + "[?" + Quote(name).String() + "]")
	}
	return child
}

// Index returns the place of an element of a list.
func (p Place) Index(index string) Place {
	hasElement := Relate(Call(Term(p.strict), "size"), ">", Term(index))
	return Place{
		Shape: p.Shape.Element(), optional: true, strict: p.strict + "[" + index + "]",
		source: Term(p.source.In(Primary) + "[?" + index + "]"),
		guard:  And(p.Guard(), hasElement),
	}
}

// Optional reports whether the value can be absent.
func (p Place) Optional() bool { return p.optional }

// Source returns the source of the value, or of the optional value.
func (p Place) Source() Expression { return p.source }

// Present returns an expression that is true if the value is present.
func (p Place) Present() Expression {
	switch {
	case !p.optional:
		return True()
	case p.parent != "" && IsIdentifier(p.name):
		return Term("has(" + p.parent + "." + p.name + ")")
	case p.parent != "":
		return Relate(Quote(p.name), "in", Term(p.parent))
	}
	return Call(p.source, "hasValue")
}

// Value returns the value, which must be present.
func (p Place) Value() Expression {
	switch {
	case !p.optional:
		return p.source
	case p.parent != "" && IsIdentifier(p.name):
		return Term(p.parent + "." + p.name)
	case p.parent != "":
		return p.typed(Term(p.parent + "[" + Quote(p.name).String() + "]"))
	}
	return p.typed(Call(p.source, "value"))
}

// Strict returns the value. Its evaluation fails if the value is absent.
func (p Place) Strict() Expression { return p.typed(Term(p.strict)) }

// typed makes an element of a map or list a value of any type. The type checker takes it
// for a value of the first type that a function accepts.
func (p Place) typed(e Expression) Expression {
	if p.optional && !IsIdentifier(p.name) {
		return Function("dyn", e)
	}
	return e
}

// Or returns the value, or a default if it is absent.
func (p Place) Or(absent string) Expression {
	if !p.optional {
		return p.source
	}
	if p.nullList {
		notNull := Function("optional.ofNonZeroValue", Call(p.source, "orValue", Term("dyn([])")))
		return Call(notNull, "orValue", Term(absent))
	}
	return Call(p.source, "orValue", Term(absent))
}
