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
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/kyverno/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/place"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/shape"
)

// Limits of one pattern.
const (
	maxDepth      = 40
	maxNodes      = 2_000
	maxText       = 2_000
	maxConditions = 200
	maxOutside    = 6
	maxExpression = 60_000
)

// Compile returns an expression that is true for an object that a pattern does not deny.
func Compile(pattern any, object place.Place) (ce.Expression, error) {
	o, err := compile(pattern, object)
	return o.ok.Expression, err
}

// CompileAny returns an expression that is true for an object that one of some patterns
// accepts, or that all of them skip.
func CompileAny(patterns []any, object place.Place) (ce.Expression, error) {
	if len(patterns) == 0 {
		return ce.True(), nil
	}
	var pass, ok []ce.Expression
	for i, p := range patterns {
		o, err := compile(p, object)
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

func compile(pattern any, object place.Place) (outcome, error) {
	c := &compiler{used: map[string]bool{}}
	o, err := c.element(pattern, object, "", false)
	if err == nil && len(o.ok.String()) > maxExpression {
		err = fmt.Errorf("the expression has %d bytes, the limit is %d: split the pattern", len(o.ok.String()), maxExpression)
	}
	return o, err
}

// test is an expression with its value when the map that it reads from is absent.
type test struct {
	ce.Expression
	absent bool
}

func constant(b bool) test { return test{ce.Constant(b), b} }

func and(a, b test) test { return test{ce.And(a.Expression, b.Expression), a.absent && b.absent} }
func or(a, b test) test  { return test{ce.Or(a.Expression, b.Expression), a.absent || b.absent} }
func not(a test) test    { return test{ce.Not(a.Expression), !a.absent} }

// outcome is the result of a part of a pattern. The skips mean nothing unless ok.
type outcome struct {
	ok      test // passes or is skipped
	direct  test // is skipped by an anchor of a map itself
	wrapped test // is skipped because of what it contains
}

func passes(ok test) outcome {
	return outcome{ok: ok, direct: constant(false), wrapped: constant(false)}
}

func (o outcome) skipped() test { return or(o.direct, o.wrapped) }
func (o outcome) pass() test    { return and(o.ok, not(o.skipped())) }

type compiler struct {
	used  map[string]bool
	nodes int
	depth int
}

// element compiles a pattern of any kind. The test of an absent value has the result absent.
func (c *compiler) element(pattern any, at place.Place, path string, absent bool) (outcome, error) {
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
	return passes(t), in(path, err)
}

// in adds the path to an error.
func in(path string, err error) error {
	if err == nil || path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), err)
}

// list compiles the pattern of a list: the first element of the pattern decides which.
func (c *compiler) list(pattern []any, at place.Place, path string, absent bool) (outcome, error) {
	known := at.Shape.Kind()
	if len(pattern) == 0 || known != shape.List && known != shape.Any {
		return passes(unlessPresent(at, absent)), nil
	}
	if _, nested := pattern[0].([]any); nested {
		return c.positions(pattern, at, path, absent)
	}
	item := c.variable(at.Name())
	if !isComposite(pattern[0]) {
		return c.listOfScalars(pattern[0], at, item, path, absent)
	}
	o, err := c.element(pattern[0], place.Of(item, at.Shape.Element()), path+"[]", false)
	if err != nil {
		return outcome{}, err
	}
	result := passes(c.listTest(at, item, o.ok.Expression, absent))
	if skipped := o.skipped(); !skipped.IsFalse() {
		v := at.Or("[]")
		all := ce.And(ce.Relate(v, "!=", ce.Term("[]")), ce.Macro(v, "all", item, skipped.Expression))
		result.wrapped = test{all, false}
	}
	return result, nil
}

func (c *compiler) listOfScalars(pattern any, at place.Place, item, path string, absent bool) (outcome, error) {
	pattern, err := c.checkScalar(pattern)
	if err != nil {
		return outcome{}, in(path, err)
	}
	body, err := single(pattern, ce.Term(item), at.Shape.Element())
	return passes(c.listTest(at, item, body, absent)), in(path, err)
}

// listTest tests that a value is a list, and all of its elements.
func (c *compiler) listTest(at place.Place, item string, body ce.Expression, absent bool) test {
	if at.Shape.Kind() == shape.Any {
		return c.guard(test{ce.Macro(at.Value(), "all", item, body), absent}, at, "list", absent)
	}
	return every(at, item, body, absent)
}

// guard adds a check of the type of a value to a test that needs it.
func (c *compiler) guard(t test, at place.Place, want string, absent bool) test {
	if at.Shape.Kind() != shape.Any {
		return t
	}
	guarded := ce.And(typeIs(at.Or(null), want), t.Expression)
	if absent && at.Optional() {
		guarded = ce.Or(ce.Not(at.Present()), guarded)
	}
	return test{guarded, absent}
}

// positions compiles a list of lists, which Kyverno compares position by position.
func (c *compiler) positions(pattern []any, at place.Place, path string, absent bool) (outcome, error) {
	enough := ce.Relate(ce.Call(at.Or("[]"), "size"), ">=", ce.Term(strconv.Itoa(len(pattern))))
	ok, skipped := test{enough, absent}, constant(true)
	for i, p := range pattern {
		o, err := c.element(p, at.Index(strconv.Itoa(i)), path+"["+strconv.Itoa(i)+"]", false)
		if err != nil {
			return outcome{}, err
		}
		ok, skipped = and(ok, test{o.ok.Expression, true}), and(skipped, o.skipped())
	}
	if absent && at.Optional() && at.Shape.Kind() != shape.Any {
		ok = test{ce.Or(ce.Not(at.Present()), ok.Expression), true}
	}
	result := passes(c.guard(ok, at, "list", absent))
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

var (
	variablePattern  = regexp.MustCompile(`\{\{.*\}\}`)
	referencePattern = regexp.MustCompile(`\$\(.+\)`)
)

// checkScalar returns the pattern as an int64, float64, bool, string or nil, or what is not
// converted.
func (c *compiler) checkScalar(pattern any) (any, error) {
	switch p := pattern.(type) {
	case nil, bool, int64:
		return p, nil
	case int:
		return int64(p), nil
	case float64:
		if p == math.Trunc(p) && math.Abs(p) < 1<<53 {
			return int64(p), nil
		}
		return p, nil
	case string:
		return p, checkText(p)
	}
	return nil, fmt.Errorf("a pattern cannot have a value of type %T", pattern)
}

func checkText(text string) error {
	switch {
	case variablePattern.MatchString(text):
		return fmt.Errorf("the variable in the pattern %q is left out: its value may have wildcards and operators; use deny.conditions", text)
	case referencePattern.MatchString(text):
		return fmt.Errorf("the reference in the pattern %q is left out: write the comparison in CEL", text)
	case len(text) > maxText, strings.Count(text, "|")+strings.Count(text, "&") > maxConditions, strings.Count(text, "!-") > maxOutside:
		return fmt.Errorf("the pattern has more than %d bytes, %d conditions or %d ranges: split it", maxText, maxConditions, maxOutside)
	}
	return nil
}
