package conditions

import (
	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// sortedList sorts texts or whole numbers.
func sortedList(c functionCall) (Value, error) {
	v := c.arguments[0]
	element := v.shape.Element()
	if v.stream != nil {
		element = v.stream.innermost().element.shape
	}
	if k := element.Kind(); v.kind() != ce.KindList || k != ce.KindString && k != ce.KindInt {
		return c.leftOut()
	}
	return computedValue(ce.Call(c.sources[0], "sort"), ce.ShapeOfList(element), c.arguments...), nil
}

// toArray is a list, or a list of the value.
func toArray(c functionCall) (Value, error) {
	v := c.arguments[0]
	switch v.kind() {
	case ce.KindList:
		return v, nil
	case ce.KindAny:
		e := ce.If(isOfType(c.sources[0], "list"), c.sources[0], ce.List(c.sources[0]))
		return computedValue(e, ce.ShapeOfList(ce.Shape{}), c.arguments...), nil
	default:
		return computedValue(ce.List(c.sources[0]), ce.ShapeOfList(v.shape), c.arguments...), nil
	}
}
