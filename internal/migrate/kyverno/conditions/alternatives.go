package conditions

import (
	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// orExpression converts a || b. Null, false and empty values are replaced.
func (s *Scope) orExpression(n jmespath.ASTNode, current *Value) (Value, error) {
	left, err := s.compile(n.Children[0], current)
	if err != nil {
		return Value{}, err
	}
	right, err := s.compile(n.Children[1], current)
	if err != nil {
		return Value{}, err
	}
	if left.kind() == ce.KindBool && right.kind() == ce.KindBool && !right.isConstant {
		e, err := s.truth(n, current)
		return computedValue(e, ce.ShapeOfKind(ce.KindBool)), err
	}
	if left.stream != nil && right.isConstant && isEmpty(right.constant) {
		return orEmptyStream(left, right), nil
	}
	if !right.isConstant || left.isConstant || left.stream != nil || left.lists != nil {
		return s.alternatives(left, right)
	}
	return orConstant(left, right)
}

func isEmpty(v any) bool {
	switch typed := v.(type) {
	case nil:
		return true
	case string:
		return typed == ""
	case bool:
		return !typed
	case []any:
		return len(typed) == 0
	case map[string]any:
		return len(typed) == 0
	}
	return false
}

// orEmptyStream is a stream, or an empty constant instead of an empty list.
func orEmptyStream(left, right Value) Value {
	inner := *left.stream
	inner.always = true
	v := Value{stream: &inner}
	if right.kind() != ce.KindList {
		v.otherwise = &right
	}
	return v
}

// orConstant is a value or a default of the same kind.
func orConstant(left, right Value) (Value, error) {
	e, err := literalExpression(right.constant)
	if err != nil {
		return Value{}, err
	}
	kind, same := left.kind(), mayDefault(left.kind(), right.kind())
	if !same && !isEmpty(right.constant) {
		return Value{}, leftOut("the default %s of a value of another type", e)
	}
	s := left.shape
	if !same || kind == ce.KindQuantity && !scalar.IsQuantity(right.constant) {
		s = ce.Shape{}
	}
	if !left.canDefault() && !isText(kind) {
		return left, nil
	}
	var failing []Value // what || does not replace
	if !left.canDefault() {
		failing = []Value{left}
	}
	value, err := left.orElse(e.String())
	if err != nil {
		return Value{}, err
	}
	result := computedValue(value, s, failing...)
	if kind == ce.KindBool && right.constant == true {
		result = computedValue(ce.True(), s, failing...) // false is replaced too
	}
	if kind == ce.KindString && !isEmpty(right.constant) {
		value, err = left.orElse(`""`)
		value = ce.Call(ce.Function("optional.ofNonZeroValue", value), "orValue", e)
		result = computedValue(value, s, failing...)
	}
	return result, err
}

// mayDefault reports whether a default of one kind can replace a value of another.
func mayDefault(value, other ce.Kind) bool {
	return value == other || value == ce.KindAny || value == ce.KindIntOrString || value == ce.KindQuantity
}

// isText reports whether a value can be empty although it is not null.
func isText(k ce.Kind) bool { return k == ce.KindString || k == ce.KindAny || k == ce.KindBool }

// alternatives is a value or another value that is no constant.
func (s *Scope) alternatives(left, right Value) (Value, error) {
	if left.stream != nil && right.stream != nil {
		return streamAlternatives(left, right)
	}
	kind := left.kind()
	if kind != right.kind() || !left.canDefault() || right.stream != nil || right.lists != nil || kind == ce.KindAny {
		return Value{}, leftOut("|| between values of different or unknown types")
	}
	truthy, err := truthOf(left)
	if err != nil {
		return Value{}, err
	}
	value, err := left.existing()
	if err != nil {
		return Value{}, err
	}
	other, err := right.strict()
	return computedValue(ce.If(truthy, value, other), left.shape, right), err
}

// streamAlternatives is a list, or another one if it is empty.
func streamAlternatives(left, right Value) (Value, error) {
	some, err := truthOf(left)
	if err != nil {
		return Value{}, err
	}
	list, err := left.strict()
	if err != nil {
		return Value{}, err
	}
	other, err := right.strict()
	return computedValue(ce.If(some, list, other), ce.ShapeOfList(left.stream.innermost().element.shape), right), err
}

func (s *elementStream) innermost() *elementStream {
	for s.inner != nil {
		s = s.inner
	}
	return s
}
