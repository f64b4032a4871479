package pattern

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/kyverno/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/place"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/shape"
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
func (c *compiler) mapping(pattern map[string]any, at place.Place, path string, absent bool) (outcome, error) {
	if known := at.Shape.Kind(); known != shape.Map && known != shape.Any {
		return passes(unlessPresent(at, absent)), nil
	}
	if keysHaveWildcards(path) {
		pattern = texts(pattern)
	}
	anchors, members := ordered(pattern)
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
	case at.Shape.Kind() == shape.Any:
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
func ifPresent(t test, at place.Place) test {
	if !t.absent {
		return t
	}
	return test{ce.And(at.Present(), t.Expression), false}
}

// ordered returns the keys of a map in the order in which Kyverno evaluates them: anchors,
// and then other members.
func ordered(pattern map[string]any) (anchors, members []string) {
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
func (c *compiler) anchors(keys []string, pattern map[string]any, at place.Place, path string, rest outcome) (outcome, error) {
	outcomes := make([]outcome, len(keys))
	wrapped, direct := constant(len(keys) > 0), constant(false)
	for i, key := range keys {
		o, err := c.member(key, pattern[key], at, path)
		if err != nil {
			return outcome{}, err
		}
		outcomes[i] = o
		wrapped, direct = and(wrapped, o.wrapped), or(direct, o.direct)
	}
	ok, skipped := or(wrapped, rest.ok), or(direct, wrapped)
	// A failure counts unless an anchor before it is a direct skip.
	for i := len(keys) - 1; i >= 0; i-- {
		ok = and(outcomes[i].ok, or(outcomes[i].direct, ok))
	}
	return outcome{ok: ok, direct: and(not(skipped), rest.direct), wrapped: or(skipped, rest.wrapped)}, nil
}

// members compiles the other members: the first one that is skipped or fails decides.
func (c *compiler) members(keys []string, pattern map[string]any, at place.Place, path string) (outcome, error) {
	rest := passes(constant(true))
	for _, key := range slices.Backward(keys) {
		o, err := c.member(key, pattern[key], at, path)
		if err != nil {
			return outcome{}, err
		}
		rest = outcome{
			ok:      and(o.ok, or(o.skipped(), rest.ok)),
			direct:  or(o.direct, and(not(o.wrapped), rest.direct)),
			wrapped: or(o.wrapped, and(not(o.direct), rest.wrapped)),
		}
	}
	return rest, nil
}

// member compiles one member of a map.
func (c *compiler) member(key string, pattern any, at place.Place, path string) (outcome, error) {
	modifier, name, anchor := Anchor(key)
	if keysHaveWildcards(path) && HasWildcard(name) {
		return c.matchingMembers(modifier, name, anchor, pattern, at, path)
	}
	field := at.Field(name)
	path += "." + name
	switch {
	case !anchor && pattern == "*":
		if field.Shape.Kind() == shape.Any {
			return passes(test{ce.Relate(field.Or(null), "!=", ce.Term("null")), false}), nil
		}
		return passes(test{field.Present(), false}), nil
	case !anchor:
		return c.element(pattern, field, path, !isComposite(pattern) && matches(normal(pattern), nil))
	}
	switch modifier {
	case "X":
		return passes(test{ce.Not(field.Present()), true}), nil
	case "=":
		return c.element(pattern, field, path, true)
	case "^":
		return c.existence(pattern, field, path)
	case "+":
		return outcome{}, fmt.Errorf("%s: the anchor +() is only for mutations: remove it from the pattern", strings.TrimPrefix(path, "."))
	}
	o, err := c.element(pattern, field, path, modifier == "<")
	if err != nil {
		return outcome{}, err
	}
	return outcome{ok: constant(true), direct: not(o.pass()), wrapped: constant(false)}, nil
}

func isComposite(pattern any) bool {
	switch pattern.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func normal(pattern any) any {
	p, _ := (&compiler{}).checkScalar(pattern)
	return p
}

// existence compiles ^(list): for each map of the pattern an element of the list passes.
func (c *compiler) existence(pattern any, at place.Place, path string) (outcome, error) {
	patterns, ok := pattern.([]any)
	known := at.Shape.Kind()
	if !ok || known != shape.List && known != shape.Any {
		return passes(unlessPresent(at, true)), nil
	}
	var all []ce.Expression
	for _, p := range patterns {
		m, ok := p.(map[string]any)
		if !ok {
			return passes(unlessPresent(at, true)), nil
		}
		item := c.variable(at.Name())
		o, err := c.element(m, place.Of(item, at.Shape.Element()), path+"[]", false)
		if err != nil {
			return outcome{}, err
		}
		all = append(all, ce.Macro(at.Value(), "exists", item, o.pass().Expression))
	}
	found := ce.And(all...)
	if known == shape.Any {
		found = ce.And(typeIs(at.Value(), "list"), found)
	}
	return passes(test{ce.Or(ce.Not(at.Present()), found), true}), nil
}

// keysHaveWildcards reports whether Kyverno expands wildcards in the keys of a map.
func keysHaveWildcards(path string) bool {
	return strings.HasSuffix(path, ".metadata.labels") || strings.HasSuffix(path, ".metadata.annotations")
}

// texts returns the members that Kyverno keeps when it expands keys.
func texts(pattern map[string]any) map[string]any {
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
func (c *compiler) matchingMembers(modifier, name string, anchor bool, pattern any, at place.Place, path string) (outcome, error) {
	key := c.variable("keys")
	element := at.Shape.Field(name)
	value := ce.Term(at.Or("{}").In(ce.Primary) + "[" + key + "]")
	if element.Kind() != shape.String {
		value = ce.Function("dyn", value)
	}
	body, err := single(pattern, value, element)
	if err != nil {
		return outcome{}, in(path+"."+name, err)
	}
	if _, err := c.checkScalar(pattern); err != nil {
		return outcome{}, in(path+"."+name, err)
	}
	matching := Match(name, ce.Term(key))
	if element.Kind() == shape.Any {
		matching = ce.And(matching, typeIs(value, "string"))
	}
	exists := func(e ce.Expression) ce.Expression { return ce.Macro(at.Or("{}"), "exists", key, e) }
	every := test{ce.Macro(at.Or("{}"), "all", key, ce.Or(ce.Not(matching), body)), true}
	one := test{exists(ce.And(matching, body)), false}
	switch {
	case !anchor && pattern == "*":
		return passes(test{exists(matching), false}), nil
	case !anchor && matches(pattern, nil):
		return passes(test{ce.Or(ce.Not(exists(matching)), one.Expression), true}), nil
	case !anchor:
		return passes(one), nil
	case modifier == "X" || modifier == "^":
		return passes(test{ce.Not(exists(matching)), true}), nil
	case modifier == "=":
		return passes(every), nil
	case modifier == "<":
		one = every
	}
	return outcome{ok: constant(true), direct: not(one), wrapped: constant(false)}, nil
}
