package pattern

import (
	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// scalar compiles a pattern that is no map or list. The test of an absent value has the
// result absent.
func (c *compiler) scalar(pattern any, at ce.Place, absent bool) (test, error) {
	pattern, err := scalar.Normalize(pattern)
	if err != nil {
		return test{}, err
	}
	switch kind := at.Shape.Kind(); kind {
	case ce.KindMap:
		return unlessPresent(at, absent), nil
	case ce.KindList:
		item := c.variable(at.Name())
		body, err := scalar.Element(pattern, ce.Term(item), at.Shape.Element())
		return everyElement(at, item, body, absent), err
	case ce.KindAny, ce.KindNumber:
		return c.untyped(pattern, at, absent)
	default:
		return typedTest(pattern, at, kind, absent)
	}
}

// unlessPresent is the test of a value that cannot pass.
func unlessPresent(at ce.Place, absent bool) test {
	if !absent {
		return test{ce.False(), false}
	}
	return test{ce.Not(at.Present()), true}
}

// everyElement tests all elements of a list.
func everyElement(at ce.Place, item string, body ce.Expression, absent bool) test {
	if absent {
		return test{ce.Macro(at.Or("[]"), "all", item, body), true}
	}
	return test{ce.And(at.Present(), ce.Macro(at.Value(), "all", item, body)), false}
}

// typedTest compiles a pattern for a value of a known type: with a default for an absent value
// if one has the same result.
func typedTest(pattern any, at ce.Place, kind ce.Kind, absent bool) (test, error) {
	compile := func(v ce.Expression) (ce.Expression, error) { return scalar.Value(pattern, v, kind) }
	if !at.Optional() {
		e, err := compile(at.Value())
		return test{e, absent}, err
	}
	for _, value := range scalar.Candidates(pattern, kind) {
		if scalar.Matches(pattern, value) == absent {
			text := scalar.Literal(value)
			if kind == ce.KindIntOrString || kind == ce.KindQuantity {
				text = "dyn(" + text + ")"
			}
			e, err := compile(at.Or(text))
			return test{e, absent}, err
		}
	}
	e, err := compile(at.Value())
	if absent {
		return test{ce.Or(ce.Not(at.Present()), e), true}, err
	}
	return test{ce.And(at.Present(), e), false}, err
}

// untyped compiles a pattern for a value of which nothing is known. All elements of a list
// must have the pattern.
func (c *compiler) untyped(pattern any, at ce.Place, absent bool) (test, error) {
	item := c.variable(at.Name())
	body, err := scalar.UntypedValue(pattern, ce.Term(item))
	if err != nil {
		return test{}, err
	}
	v := at.Or(scalar.Null)
	values := ce.Term(
		"(" + scalar.TypeIs(v, "list").String() + " ? " + v.In(ce.Disjunction) + " : [" + v.String() + "])",
	)
	e := ce.Macro(values, "all", item, body)
	switch {
	case !at.Optional() || absent == scalar.Matches(pattern, nil):
		return test{e, absent}, nil
	case absent:
		return test{ce.Or(ce.Not(at.Present()), e), true}, nil
	}
	return test{ce.And(at.Present(), e), false}, nil
}
