package conditions

import (
	"fmt"
	"strings"

	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Field returns the value of a place.
func Field(p ce.Place) Value { return placeValue(p) }

// IsLookup reports whether the value is what a lookup finds: a list of objects, or one of them.
func (v Value) IsLookup() bool {
	list, ok := v.members["items"]
	if ok {
		v = list
	}
	return v.place != nil && strings.HasPrefix(v.place.Source().String(), "lookups.")
}

// IsConstant reports whether the value is a constant.
func (v Value) IsConstant() bool { return v.isConstant }

// String returns the source of a value that is no list of lists.
func (v Value) String() string {
	e, err := v.strict()
	if err != nil {
		return ""
	}
	return e.String()
}

// Index returns the value of a variable with the index of an element.
func Index(variable string) Value {
	return computedValue(ce.Term(variable), ce.ShapeOfKind(ce.KindInt))
}

// Source returns the source of the value, which fails if the value is absent.
func (v Value) Source() (ce.Expression, error) { return v.strict() }

// IsListField reports whether the value is a field with a list.
func (v Value) IsListField() bool {
	return v.place != nil && (v.kind() == ce.KindList || v.kind() == ce.KindAny)
}

// ListField returns the field with a list, also if all of its elements are projected.
func (v Value) ListField() (ce.Place, bool) {
	if s := v.stream; s != nil && s.inner == nil && s.where.IsTrue() && s.element.place != nil &&
		s.element.place.Source().String() == s.variable {
		v = s.source
	}
	if !v.IsListField() {
		return ce.Place{}, false
	}
	return *v.place, true
}

// JoinedFields returns the fields of the lists that [a, b][] joins; nil if it is another list.
func (v Value) JoinedFields() (out []ce.Place) {
	s := v.stream
	if s == nil || s.inner != nil || !s.where.IsTrue() || s.element.place == nil ||
		s.element.place.Source().String() != s.variable {
		return nil
	}
	for _, l := range s.source.lists {
		if !l.IsListField() {
			return nil
		}
		out = append(out, *l.place)
	}
	return out
}

// IsMap reports whether the value is a map, or may be one because its type is not known.
func (v Value) IsMap() bool {
	k := v.kind()
	return k == ce.KindMap || k == ce.KindAny && v.place != nil
}

// Place returns the place of a value that is a map.
func (v Value) Place() ce.Place {
	if v.place != nil {
		return *v.place
	}
	return ce.VariablePlace(v.expression.In(ce.Primary), v.shape)
}

// JMESPathOf converts an expression that reads a value.
func (s *Scope) JMESPathOf(source string, current Value) (Value, error) {
	s, source, err := s.withoutLiterals(source)
	if err != nil {
		return Value{}, err
	}
	node, err := jmespath.NewParser().Parse(strings.TrimSpace(source))
	if err != nil {
		return Value{}, fmt.Errorf("parsing the JMESPath expression %q: %w", source, err)
	}
	return s.compile(node, &current)
}

// Default returns a value, or a default if it is null.
func (s *Scope) Default(v Value, absent any) (Value, error) {
	d, err := s.Any(absent)
	if err != nil {
		return Value{}, err
	}
	if !d.isConstant || v.place == nil || v.kind() != d.kind() && v.kind() != ce.KindAny {
		return Value{}, leftOut("the default of a variable that is no field, or of another type")
	}
	e, err := literalExpression(d.constant)
	if err != nil {
		return Value{}, err
	}
	return computedValue(v.place.Or(e.String()), v.shape), nil
}

// Required is a value whose evaluation fails if it is null or absent, as that of a variable of
// a context without a default.
func (v Value) Required() (Value, error) {
	switch {
	case v.place != nil && v.place.Optional():
		strict := ce.VariablePlace(v.place.Strict().In(ce.Primary), v.shape)
		required := placeValue(strict)
		required.required = true
		return required, nil
	case v.stream != nil && v.stream.source.lists == nil && !v.stream.always && v.stream.source.mayBeAbsent():
		source, err := v.stream.source.Required()
		stream := *v.stream
		stream.source = source
		v.stream = &stream
		return v, err
	}
	return v, nil
}

// ForEach returns an expression that is true if a check is for all elements of a list. An
// absent list has none, and null elements are skipped.
func (s *Scope) ForEach(list string, check func(Value) (ce.Expression, error)) (ce.Expression, error) {
	v, err := s.JMESPath(list)
	if err != nil {
		return ce.False(), err
	}
	switch {
	case v.lists == nil && v.kind() == ce.KindList:
		stream, err := s.stream(v)
		if err != nil {
			return ce.False(), err
		}
		return stream.stream.quantify("all", check)
	case v.kind() == ce.KindAny && v.place != nil:
		source := v.place.Or("[]")
		item := s.variable(v)
		body, err := check(placeValue(ce.VariablePlace(item, ce.Shape{})))
		isList := ce.Relate(ce.Function("type", source), "==", ce.Term("list"))
		values := ce.Term("(" + isList.String() + " ? " + source.String() + " : [" + source.String() + "])")
		return ce.Macro(values, "all", item, body), err
	case v.place != nil: // one element
		body, err := check(v)
		return ce.Or(ce.Not(v.present()), body), err
	}
	return ce.False(), leftOut("foreach of a value that is no list")
}
