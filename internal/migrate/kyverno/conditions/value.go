package conditions

import (
	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// nullText is a default of any type for the type checker.
const nullText = "dyn(null)"

// Value is a converted JMESPath expression.
type Value struct {
	// place of the value, if it is a field of something.
	place *ce.Place
	// expression of the value, if it has no place.
	expression ce.Expression
	shape      ce.Shape
	when       ce.Expression // the expression has a value
	absent     absence       // what the value is otherwise
	fails      bool          // the evaluation of the expression may fail
	required   bool          // the evaluation fails if the value is absent, although it has a place
	piped      *ce.Place     // the place of a value after a pipe, for the fields of it
	constant   any
	isConstant bool
	stream     *elementStream
	otherwise  *Value // instead of a stream that is empty
	// members are those of a value that only has members, such as the name of an image.
	members map[string]Value
	// substituted are values that Kyverno replaces in the expression before it evaluates it.
	substituted []Value
	// list has several lists of which each may be absent.
	lists []Value
}

// absence is what JMESPath returns instead of a value that is absent.
type absence int

const (
	// absentNull is null.
	absentNull absence = iota
	// absentField is the error of a field that is absent. Projections, pipes, arguments of
	// functions, || and comparisons take it for null.
	absentField
	// absentFailure is another error. Only filters, flattenings and projections of maps take it
	// for null.
	absentFailure
)

func constantValue(v any) Value { return Value{constant: v, isConstant: true} }

func placeValue(p ce.Place) Value { return Value{place: &p, shape: p.Shape} }

// computedValue is a value that is never null. It fails if one of its operands is absent.
func computedValue(e ce.Expression, s ce.Shape, operands ...Value) Value {
	v := Value{expression: e, shape: s}
	var present []ce.Expression
	for _, o := range operands {
		if o.mayBeAbsent() || o.stream != nil && o.stream.fails {
			v.fails, v.absent = true, absentFailure
			present = append(present, o.existence())
		}
	}
	if v.fails {
		v.when = ce.And(present...)
	}
	return v
}

// isComputed reports whether the value is an expression that is no field.
func (v Value) isComputed() bool {
	return v.place == nil && v.stream == nil && v.lists == nil && !v.isConstant
}

// canDefault reports whether || replaces the value where it is absent.
func (v Value) canDefault() bool {
	return v.place != nil || v.when.String() != "" && v.absent != absentFailure
}

// orNull is the value for what takes all errors for null.
func (v Value) orNull() Value {
	v.absent = absentNull
	if v.stream != nil && v.stream.needsAll {
		v.stream.orNull, v.stream.fails = true, false
	}
	return v
}

// afterPipe is the value as the result of a pipe, which takes an absent field for null.
func (v Value) afterPipe() Value {
	switch {
	case v.place != nil && v.place.Optional():
		return Value{expression: v.place.Value(), shape: v.shape, when: v.place.Present(), piped: v.place}
	case v.absent == absentField:
		return v.orNull()
	}
	return v
}

// notNull returns an expression that is false where the value is null. Where the evaluation
// of the value fails, that of the expression may fail too.
func (v Value) notNull() ce.Expression {
	switch {
	case v.place != nil:
		return v.place.Guard()
	case v.stream != nil:
		return v.stream.present()
	case v.when.String() != "" && v.absent == absentNull:
		return v.when
	}
	return ce.True()
}

// existence returns an expression that is true if the value is not absent.
func (v Value) existence() ce.Expression {
	if v.isComputed() && v.when.String() != "" {
		return v.when
	}
	return v.present()
}

// mayBeAbsent reports whether the value can be null or absent.
func (v Value) mayBeAbsent() bool {
	switch {
	case v.place != nil:
		return v.place.Optional()
	case v.stream != nil:
		return !v.stream.always && (v.stream.orNull || v.stream.source.mayBeAbsent())
	}
	return v.fails || v.when.String() != ""
}

// kind returns the kind of the value, which may be null too.
func (v Value) kind() ce.Kind {
	switch {
	case v.isConstant:
		return kindOf(v.constant)
	case v.stream != nil, v.lists != nil:
		return ce.KindList
	}
	return v.shape.Kind()
}

func kindOf(constant any) ce.Kind {
	switch constant.(type) {
	case string:
		return ce.KindString
	case bool:
		return ce.KindBool
	case int64:
		return ce.KindInt
	case float64:
		return ce.KindNumber
	case []any:
		return ce.KindList
	case map[string]any:
		return ce.KindMap
	}
	return ce.KindAny
}

// strict returns the value. Its evaluation fails where Kyverno's fails.
func (v Value) strict() (ce.Expression, error) {
	switch {
	case v.isConstant:
		return literalExpression(v.constant)
	case v.place != nil:
		return v.place.Strict(), nil
	case v.stream != nil:
		return v.stream.strict()
	case v.lists != nil:
		return ce.False(), leftOut("a list of several fields that is not flattened")
	case v.members != nil:
		if _, isList := v.members["items"]; isList {
			return ce.False(), leftOut("a list of objects as a whole")
		}
		return ce.False(), leftOut("an image as a whole")
	}
	return v.expression, nil
}

// mayFail reports whether the evaluation of the value can fail.
func (v Value) mayFail() bool {
	switch {
	case v.required:
		return true
	case v.place != nil:
		return v.place.Optional()
	case v.stream != nil:
		return v.stream.fails
	}
	return v.fails && v.absent != absentNull
}

// present returns an expression that is true if the value is not null or absent.
func (v Value) present() ce.Expression {
	switch {
	case v.place != nil:
		return v.place.Present()
	case v.isConstant:
		return ce.Constant(v.constant != nil)
	case v.stream != nil:
		return v.stream.present()
	case v.when.String() != "" && v.absent != absentFailure:
		return v.when
	}
	return ce.True()
}

// orElse returns the value, or a default if it is null.
func (v Value) orElse(absent string) (ce.Expression, error) {
	switch {
	case v.place != nil:
		return v.place.Or(absent), nil
	case v.stream != nil:
		list, err := v.stream.sourceOrEmpty()
		if err != nil {
			return list, err
		}
		if list, err = v.stream.from(list); err != nil || absent == "[]" {
			return list, err
		}
		return ce.If(v.stream.present(), list, ce.Term(absent)), nil
	case v.canDefault():
		return ce.If(v.when, v.expression, ce.Term(absent)), nil
	}
	return v.strict()
}

// existing returns the value, which must be present.
func (v Value) existing() (ce.Expression, error) {
	if v.place != nil {
		return v.place.Value(), nil
	}
	return v.strict()
}

// field returns a member of the value.
func (v Value) field(name string) (Value, error) {
	if v.members != nil {
		member, ok := v.members[name]
		if !ok {
			if _, isList := v.members["items"]; isList {
				return member, leftOut("the field %s of a list of objects", name)
			}
			return member, leftOut("the part %s of the name of an image", name)
		}
		return member, nil
	}
	switch {
	case v.place != nil:
		return placeValue(v.place.Field(name)), nil
	case v.piped != nil:
		return placeValue(v.piped.Field(name)), nil
	}
	e, err := v.strict()
	if err != nil {
		return Value{}, err
	}
	return placeValue(ce.VariablePlace(e.In(ce.Primary), v.shape).Field(name)), nil
}

// elementStream is a list whose elements are computed from those of another.
type elementStream struct {
	source   Value // the list
	variable string
	where    ce.Expression
	element  Value
	inner    *elementStream // the elements are those of this list, flattened
	always   bool           // an absent list is an empty one
	fails    bool           // the evaluation of the list may fail
	filtered bool           // the evaluation of a filter may fail
	needsAll bool           // of several lists, each has to be present, or the evaluation fails
	orNull   bool           // the list is null instead
}

// copied returns a value whose stream others can change.
func (v Value) copied() Value {
	if v.stream != nil {
		v.stream = v.stream.copied()
	}
	return v
}

func (s *elementStream) copied() *elementStream {
	c := *s
	c.source, c.element = s.source.copied(), s.element.copied()
	if s.inner != nil {
		c.inner = s.inner.copied()
	}
	return &c
}

// list returns the list without elements that are left out, empty if it is absent.
func (s *elementStream) sourceOrEmpty() (ce.Expression, error) {
	empty := "[]"
	if k := s.source.shape.Element().Kind(); k == ce.KindAny || k == ce.KindIntOrString || k == ce.KindQuantity {
		empty = "dyn([])" // the type checker takes elements for values of the first type that fits
	}
	switch {
	case s.source.lists == nil:
		return s.source.orElse(empty)
	case !s.needsAll:
		return s.sum(func(l Value) (ce.Expression, error) { return l.orElse(empty) })
	}
	sum, err := s.sum(Value.strict)
	if s.orNull {
		sum = ce.If(s.allPresent(), sum, ce.Term(empty))
	}
	return sum, err
}

// allPresent returns an expression that is true if none of several lists is absent.
func (s *elementStream) allPresent() ce.Expression {
	var all []ce.Expression
	for _, l := range s.source.lists {
		all = append(all, l.present())
	}
	return ce.And(all...)
}

// sum returns several lists as one.
func (s *elementStream) sum(read func(Value) (ce.Expression, error)) (ce.Expression, error) {
	sum := ce.Expression{}
	for i, l := range s.source.lists {
		e, err := read(l)
		if err != nil {
			return e, err
		}
		if i == 0 {
			sum = e
		} else {
			sum = ce.Raw(sum.In(ce.Addition)+" + "+e.In(ce.Multiplication), ce.Addition)
		}
	}
	return sum, nil
}

func (s *elementStream) present() ce.Expression {
	switch {
	case s.always:
		return ce.True()
	case s.orNull:
		return s.allPresent()
	case s.source.lists != nil:
		return ce.True()
	}
	return s.source.present()
}

func (s *elementStream) strict() (ce.Expression, error) {
	list, err := s.sourceOrEmpty()
	if err != nil {
		return list, err
	}
	switch {
	case s.always:
	case s.orNull:
		list, err = s.sum(Value.strict)
	case s.source.lists == nil:
		list, err = s.source.strict()
	}
	if err != nil {
		return list, err
	}
	return s.from(list)
}

// from returns the elements of the stream as a list.
func (s *elementStream) from(list ce.Expression) (ce.Expression, error) {
	if s.inner != nil {
		inner, err := s.inner.sourceOrEmpty()
		if err != nil {
			return inner, err
		}
		if inner, err = s.inner.from(inner); err != nil {
			return inner, err
		}
		return ce.Call(ce.Call(list, "map", s.arguments(s.where, inner)...), "flatten"), nil
	}
	if err := s.flat(); err != nil {
		return ce.False(), err
	}
	where := ce.And(s.where, s.element.present())
	e, err := s.element.existing()
	switch {
	case err != nil:
		return e, err
	case e.String() == s.variable && where.IsTrue():
		return list, nil
	case e.String() == s.variable:
		return ce.Macro(list, "filter", s.variable, where), nil
	}
	return ce.Call(list, "map", s.arguments(where, e)...), nil
}

// flat returns an error for elements that are lists of which the list is not flattened.
func (s *elementStream) flat() error {
	if s.element.stream != nil || s.element.lists != nil {
		return leftOut("a projection of lists that is not flattened")
	}
	return nil
}

func (s *elementStream) arguments(where, e ce.Expression) []ce.Expression {
	if where.IsTrue() {
		return []ce.Expression{ce.Term(s.variable), e}
	}
	return []ce.Expression{ce.Term(s.variable), where, e}
}

// quantify returns source.exists(variable, predicate) or source.all.
func (s *elementStream) quantify(macro string, predicate func(Value) (ce.Expression, error)) (ce.Expression, error) {
	list, err := s.sourceOrEmpty()
	if err != nil {
		return list, err
	}
	where, body := s.where, ce.True()
	if s.inner != nil {
		body, err = s.inner.quantify(macro, predicate)
	} else if err = s.flat(); err == nil {
		where = ce.And(where, s.element.present())
		body, err = predicate(s.element.known())
	}
	if err != nil {
		return body, err
	}
	if macro == "all" {
		return ce.Macro(list, "all", s.variable, ce.Or(ce.Not(where), body)), nil
	}
	return ce.Macro(list, "exists", s.variable, ce.And(where, body)), nil
}

// known returns the value where it is known to be present.
func (v Value) known() Value {
	if v.place == nil || !v.place.Optional() {
		return v
	}
	return Value{expression: v.place.Value(), shape: v.shape}
}
