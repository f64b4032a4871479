package pattern

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

var anchorPattern = regexp.MustCompile(`^([+<=X^])?\((.+)\)$`)

// Anchor returns the modifier of a key with an anchor, which is empty for a conditional
// anchor, and the key without it.
func Anchor(key string) (modifier, name string, found bool) {
	m := anchorPattern.FindStringSubmatch(strings.TrimSpace(key))
	if m == nil {
		return "", key, false
	}
	return m[1], m[2], true
}

// mapping compiles the pattern of a map.
func (c *compiler) mapping(pattern map[string]any, at ce.Place, path string, absent bool) (outcome, error) {
	if known := at.Shape.Kind(); known != ce.KindMap && known != ce.KindAny {
		return withoutSkips(unlessPresent(at, absent)), nil
	}
	if keysHaveWildcards(path) {
		pattern = textMembers(pattern)
	}
	anchors, members := orderedKeys(pattern)
	o, err := c.members(members, pattern, at, path)
	if err != nil {
		return outcome{}, err
	}
	if o, err = c.anchors(anchors, pattern, at, path, o); err != nil {
		return outcome{}, err
	}
	if absent {
		o.direct, o.wrapped = ifPresent(o.direct, at), ifPresent(o.wrapped, at)
	}
	switch {
	case at.Shape.Kind() == ce.KindAny:
		o.ok = c.guard(o.ok, at, "map", absent)
	case !at.Optional() || o.ok.absent == absent:
		o.ok.absent = absent
	case absent:
		o.ok = test{ce.Or(ce.Not(at.Present()), o.ok.Expression), true}
	default:
		o.ok = test{ce.And(at.Present(), o.ok.Expression), false}
	}
	return o, nil
}

// ifPresent is a test that an absent value does not pass.
func ifPresent(t test, at ce.Place) test {
	if !t.absent {
		return t
	}
	return test{ce.And(at.Present(), t.Expression), false}
}

// orderedKeys returns the keys of a map in the order in which Kyverno evaluates them: anchors,
// and then other members.
func orderedKeys(pattern map[string]any) (anchors, members []string) {
	var plain []string
	for _, key := range slices.Sorted(maps.Keys(pattern)) {
		modifier, _, anchor := Anchor(key)
		switch {
		case anchor && slices.Contains([]string{"", "=", "X", "^"}, modifier):
			anchors = append(anchors, key)
		case modifier == "<" || hasAnchors(pattern[key]):
			members = append([]string{key}, members...)
		default:
			plain = append(plain, key)
		}
	}
	return anchors, append(members, plain...)
}

func hasAnchors(pattern any) bool {
	switch p := pattern.(type) {
	case map[string]any:
		for key, value := range p {
			if modifier, _, found := Anchor(key); found && modifier != "+" || hasAnchors(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(p, hasAnchors)
	}
	return false
}

// anchors compiles the anchors before what follows them. A direct skip ends the
// evaluation of anchors; if all anchors are skipped, nothing follows.
func (c *compiler) anchors(
	keys []string,
	pattern map[string]any,
	at ce.Place,
	path string,
	rest outcome,
) (outcome, error) {
	outcomes := make([]outcome, len(keys))
	wrapped, direct := constantTest(len(keys) > 0), constantTest(false)
	for i, key := range keys {
		o, err := c.member(key, pattern[key], at, path)
		if err != nil {
			return outcome{}, err
		}
		outcomes[i] = o
		wrapped, direct = bothTests(wrapped, o.wrapped), eitherTest(direct, o.direct)
	}
	ok, skipped := eitherTest(wrapped, rest.ok), eitherTest(direct, wrapped)
	// A failure counts unless an anchor before it is a direct skip.
	for i := len(keys) - 1; i >= 0; i-- {
		ok = bothTests(outcomes[i].ok, eitherTest(outcomes[i].direct, ok))
	}
	return outcome{
		ok:      ok,
		direct:  bothTests(negatedTest(skipped), rest.direct),
		wrapped: eitherTest(skipped, rest.wrapped),
	}, nil
}

// members compiles the other members: the first one that is skipped or fails decides.
func (c *compiler) members(keys []string, pattern map[string]any, at ce.Place, path string) (outcome, error) {
	rest := withoutSkips(constantTest(true))
	for _, key := range slices.Backward(keys) {
		o, err := c.member(key, pattern[key], at, path)
		if err != nil {
			return outcome{}, err
		}
		rest = outcome{
			ok:      bothTests(o.ok, eitherTest(o.skipped(), rest.ok)),
			direct:  eitherTest(o.direct, bothTests(negatedTest(o.wrapped), rest.direct)),
			wrapped: eitherTest(o.wrapped, bothTests(negatedTest(o.direct), rest.wrapped)),
		}
	}
	return rest, nil
}

// member compiles one member of a map.
func (c *compiler) member(key string, pattern any, at ce.Place, path string) (outcome, error) {
	modifier, name, anchor := Anchor(key)
	if keysHaveWildcards(path) && scalar.HasWildcard(name) {
		return c.matchingMembers(modifier, name, anchor, pattern, at, path)
	}
	field := at.Field(name)
	path += "." + name
	switch {
	case !anchor && pattern == "*":
		if field.Shape.Kind() == ce.KindAny {
			return withoutSkips(test{ce.Relate(field.Or(scalar.Null), "!=", ce.Term("null")), false}), nil
		}
		return withoutSkips(test{field.Present(), false}), nil
	case !anchor:
		return c.element(pattern, field, path, !isComposite(pattern) && acceptsAbsent(pattern))
	}
	switch modifier {
	case "X":
		return withoutSkips(test{ce.Not(field.Present()), true}), nil
	case "=":
		return c.element(pattern, field, path, true)
	case "^":
		return c.existence(pattern, field, path)
	case "+":
		return outcome{}, fmt.Errorf(
			"%s: the anchor +() is only for mutations: remove it from the pattern",
			strings.TrimPrefix(path, "."),
		)
	}
	o, err := c.element(pattern, field, path, modifier == "<")
	if err != nil {
		return outcome{}, err
	}
	return outcome{ok: constantTest(true), direct: negatedTest(o.pass()), wrapped: constantTest(false)}, nil
}

// acceptsAbsent reports whether a pattern accepts an absent value.
func acceptsAbsent(pattern any) bool {
	normalized, _ := scalar.Normalize(pattern) // compiling the pattern reports the error
	return scalar.Matches(normalized, nil)
}

func isComposite(pattern any) bool {
	switch pattern.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// existence compiles ^(list): for each map of the pattern an element of the list passes.
func (c *compiler) existence(pattern any, at ce.Place, path string) (outcome, error) {
	patterns, ok := pattern.([]any)
	known := at.Shape.Kind()
	if !ok || known != ce.KindList && known != ce.KindAny {
		return withoutSkips(unlessPresent(at, true)), nil
	}
	var all []ce.Expression
	for _, p := range patterns {
		m, ok := p.(map[string]any)
		if !ok {
			return withoutSkips(unlessPresent(at, true)), nil
		}
		item := c.variable(at.Name())
		o, err := c.element(m, ce.VariablePlace(item, at.Shape.Element()), path+"[]", false)
		if err != nil {
			return outcome{}, err
		}
		all = append(all, ce.Macro(at.Value(), "exists", item, o.pass().Expression))
	}
	found := ce.And(all...)
	if known == ce.KindAny {
		found = ce.And(scalar.TypeIs(at.Value(), "list"), found)
	}
	return withoutSkips(test{ce.Or(ce.Not(at.Present()), found), true}), nil
}

// keysHaveWildcards reports whether Kyverno expands wildcards in the keys of a map.
func keysHaveWildcards(path string) bool {
	return strings.HasSuffix(path, ".metadata.labels") || strings.HasSuffix(path, ".metadata.annotations")
}

// textMembers returns the members that Kyverno keeps when it expands keys.
func textMembers(pattern map[string]any) map[string]any {
	kept := map[string]any{}
	for key, value := range pattern {
		if _, isText := value.(string); isText {
			kept[key] = value
		}
	}
	return kept
}

// matchingMembers compiles a member whose key has wildcards. Kyverno compares the value of
// one matching key; of several, here one has to have the pattern, or with =() and <() all.
func (c *compiler) matchingMembers(
	modifier,
	name string,
	anchor bool,
	pattern any,
	at ce.Place,
	path string,
) (outcome, error) {
	key := c.variable("keys")
	element := at.Shape.Field(name)
	value := ce.Term(at.Or("{}").In(ce.Primary) + "[" + key + "]")
	if element.Kind() != ce.KindString {
		value = ce.Function("dyn", value)
	}
	body, err := scalar.Element(pattern, value, element)
	if err != nil {
		return outcome{}, atPath(path+"."+name, err)
	}
	if _, err := scalar.Normalize(pattern); err != nil {
		return outcome{}, atPath(path+"."+name, err)
	}
	matching := scalar.MatchWildcard(name, ce.Term(key))
	if element.Kind() == ce.KindAny {
		matching = ce.And(matching, scalar.TypeIs(value, "string"))
	}
	exists := func(e ce.Expression) ce.Expression { return ce.Macro(at.Or("{}"), "exists", key, e) }
	every := test{ce.Macro(at.Or("{}"), "all", key, ce.Or(ce.Not(matching), body)), true}
	one := test{exists(ce.And(matching, body)), false}
	switch {
	case !anchor && pattern == "*":
		return withoutSkips(test{exists(matching), false}), nil
	case !anchor && scalar.Matches(pattern, nil):
		return withoutSkips(test{ce.Or(ce.Not(exists(matching)), one.Expression), true}), nil
	case !anchor:
		return withoutSkips(one), nil
	case modifier == "X" || modifier == "^":
		return withoutSkips(test{ce.Not(exists(matching)), true}), nil
	case modifier == "=":
		return withoutSkips(every), nil
	case modifier == "<":
		one = every
	}
	return outcome{ok: constantTest(true), direct: negatedTest(one), wrapped: constantTest(false)}, nil
}
