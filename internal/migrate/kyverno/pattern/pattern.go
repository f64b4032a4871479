// Package pattern compiles the patterns of Kyverno policies (validate.pattern and
// anyPattern) to CEL.
//
// A pattern passes, fails, or skips the object: a conditional anchor that does not match
// skips the map that has it, and a map or list of which everything is skipped is skipped.
// Only a failure denies. The order in which Kyverno evaluates the members of a map matters,
// because a skipped member ends the evaluation: anchors are first, then members that contain
// anchors, then others.
//
// One difference is deliberate: Kyverno also accepts a value that is the text of the pattern
// itself, such as the value "!a" for the pattern "!a".
package pattern

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// Limits of one pattern.
const (
	maxDepth      = 40
	maxNodes      = 2_000
	maxExpression = 60_000
)

// Compile returns an expression that is true for an object that a pattern does not deny.
func Compile(pattern any, object ce.Place) (ce.Expression, error) {
	o, err := compilePattern(pattern, object)
	return o.ok.Expression, err
}

// CompileAny returns an expression that is true for an object that one of some patterns
// accepts, or that all of them skip.
func CompileAny(patterns []any, object ce.Place) (ce.Expression, error) {
	if len(patterns) == 0 {
		return ce.True(), nil
	}
	var pass, ok []ce.Expression
	for i, p := range patterns {
		o, err := compilePattern(p, object)
		if err != nil {
			return ce.False(), fmt.Errorf("anyPattern[%d]: %w", i, err)
		}
		pass, ok = append(pass, o.pass().Expression), append(ok, o.ok.Expression)
	}
	skipped := ce.And(ok...)
	if slices.EqualFunc(pass, ok, func(a, b ce.Expression) bool { return a.String() == b.String() }) {
		skipped = ce.False() // nothing can be skipped
	}
	return ce.Or(append(pass, skipped)...), nil
}

func compilePattern(pattern any, object ce.Place) (outcome, error) {
	c := &compiler{used: map[string]bool{}}
	o, err := c.element(pattern, object, "", false)
	if err == nil && len(o.ok.String()) > maxExpression {
		err = fmt.Errorf(
			"the expression has %d bytes, the limit is %d: split the pattern",
			len(o.ok.String()),
			maxExpression,
		)
	}
	return o, err
}

// test is an expression with its value when the map that it reads from is absent.
type test struct {
	ce.Expression
	absent bool
}

func constantTest(b bool) test { return test{ce.Constant(b), b} }

func bothTests(a, b test) test  { return test{ce.And(a.Expression, b.Expression), a.absent && b.absent} }
func eitherTest(a, b test) test { return test{ce.Or(a.Expression, b.Expression), a.absent || b.absent} }
func negatedTest(a test) test   { return test{ce.Not(a.Expression), !a.absent} }

// outcome is the result of a part of a pattern. The skips mean nothing unless ok.
type outcome struct {
	ok      test // passes or is skipped
	direct  test // is skipped by an anchor of a map itself
	wrapped test // is skipped because of what it contains
}

func withoutSkips(ok test) outcome {
	return outcome{ok: ok, direct: constantTest(false), wrapped: constantTest(false)}
}

func (o outcome) skipped() test { return eitherTest(o.direct, o.wrapped) }
func (o outcome) pass() test    { return bothTests(o.ok, negatedTest(o.skipped())) }

type compiler struct {
	used  map[string]bool
	nodes int
	depth int
}

// element compiles a pattern of any kind. The test of an absent value has the result absent.
func (c *compiler) element(pattern any, at ce.Place, path string, absent bool) (outcome, error) {
	c.nodes++
	c.depth++
	defer func() { c.depth-- }()
	if c.nodes > maxNodes || c.depth > maxDepth {
		return outcome{}, fmt.Errorf("the pattern has more than %d parts or %d levels: split it", maxNodes, maxDepth)
	}
	switch p := pattern.(type) {
	case map[string]any:
		return c.mapping(p, at, path, absent)
	case []any:
		return c.list(p, at, path, absent)
	}
	t, err := c.scalar(pattern, at, absent)
	return withoutSkips(t), atPath(path, err)
}

// atPath adds the path to an error.
func atPath(path string, err error) error {
	if err == nil || path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), err)
}

// list compiles the pattern of a list: the first element of the pattern decides which.
func (c *compiler) list(pattern []any, at ce.Place, path string, absent bool) (outcome, error) {
	known := at.Shape.Kind()
	if len(pattern) == 0 || known != ce.KindList && known != ce.KindAny {
		return withoutSkips(unlessPresent(at, absent)), nil
	}
	if _, nested := pattern[0].([]any); nested {
		return c.positions(pattern, at, path, absent)
	}
	item := c.variable(at.Name())
	if !isComposite(pattern[0]) {
		return c.listOfScalars(pattern[0], at, item, path, absent)
	}
	o, err := c.element(pattern[0], ce.VariablePlace(item, at.Shape.Element()), path+"[]", false)
	if err != nil {
		return outcome{}, err
	}
	result := withoutSkips(c.listTest(at, item, o.ok.Expression, absent))
	if skipped := o.skipped(); !skipped.IsFalse() {
		v := at.Or("[]")
		all := ce.And(ce.Relate(v, "!=", ce.Term("[]")), ce.Macro(v, "all", item, skipped.Expression))
		result.wrapped = test{all, false}
	}
	return result, nil
}

func (c *compiler) listOfScalars(pattern any, at ce.Place, item, path string, absent bool) (outcome, error) {
	pattern, err := scalar.Normalize(pattern)
	if err != nil {
		return outcome{}, atPath(path, err)
	}
	body, err := scalar.Element(pattern, ce.Term(item), at.Shape.Element())
	return withoutSkips(c.listTest(at, item, body, absent)), atPath(path, err)
}

// listTest tests that a value is a list, and all of its elements.
func (c *compiler) listTest(at ce.Place, item string, body ce.Expression, absent bool) test {
	if at.Shape.Kind() == ce.KindAny {
		return c.guard(test{ce.Macro(at.Value(), "all", item, body), absent}, at, "list", absent)
	}
	return everyElement(at, item, body, absent)
}

// guard adds a check of the type of a value to a test that needs it.
func (c *compiler) guard(t test, at ce.Place, want string, absent bool) test {
	if at.Shape.Kind() != ce.KindAny {
		return t
	}
	guarded := ce.And(scalar.TypeIs(at.Or(scalar.Null), want), t.Expression)
	if absent && at.Optional() {
		guarded = ce.Or(ce.Not(at.Present()), guarded)
	}
	return test{guarded, absent}
}

// positions compiles a list of lists, which Kyverno compares position by position.
func (c *compiler) positions(pattern []any, at ce.Place, path string, absent bool) (outcome, error) {
	enough := ce.Relate(ce.Call(at.Or("[]"), "size"), ">=", ce.Term(strconv.Itoa(len(pattern))))
	ok, skipped := test{enough, absent}, constantTest(true)
	for i, p := range pattern {
		o, err := c.element(p, at.Index(strconv.Itoa(i)), path+"["+strconv.Itoa(i)+"]", false)
		if err != nil {
			return outcome{}, err
		}
		ok, skipped = bothTests(ok, test{o.ok.Expression, true}), bothTests(skipped, o.skipped())
	}
	if absent && at.Optional() && at.Shape.Kind() != ce.KindAny {
		ok = test{ce.Or(ce.Not(at.Present()), ok.Expression), true}
	}
	result := withoutSkips(c.guard(ok, at, "list", absent))
	result.wrapped = ifPresent(test{skipped.Expression, true}, at)
	return result, nil
}

// variable returns a name for the elements of a list.
func (c *compiler) variable(list string) string {
	name := ce.Singular(list, "item")
	if c.used == nil {
		c.used = map[string]bool{}
	}
	unique := name
	for i := 2; c.used[unique]; i++ {
		unique = name + strconv.Itoa(i)
	}
	c.used[unique] = true
	return unique
}
