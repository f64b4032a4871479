package conditions

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// membership converts In and its relatives: whether elements of the key are in the value.
func (s *Scope) membership(k Value, operator string, v Value) (ce.Expression, error) {
	if e, ok, err := s.untypedMembership(k, operator, v); ok {
		return e, err
	}
	exact := operator == "in" || operator == "notin"
	target, err := s.newTarget(v, exact)
	if err != nil {
		return ce.False(), err
	}
	negated := strings.Contains(operator, "not")
	if k.isConstant {
		if elements, ok := k.constant.([]any); ok {
			return target.constants(elements, operator)
		}
	}
	switch {
	case k.stream != nil:
		return target.quantify(k, operator)
	case k.kind() == ce.KindList:
		list, err := s.stream(k)
		if err != nil {
			return ce.False(), err
		}
		list.stream.source = strictValue(k)
		return target.quantify(list, operator)
	case k.lists != nil || k.kind() == ce.KindMap:
		return ce.False(), leftOut("%s of a value that is no list", operator)
	}
	key, err := scalarKey(k)
	if err != nil {
		return ce.False(), err
	}
	return signedMembership(target, key, negated)
}

// untypedMembership converts an operator for a key or a value whose type is not known: it decides by
// their types. All operators are false for null and for maps.
func (s *Scope) untypedMembership(k Value, operator string, v Value) (e ce.Expression, ok bool, err error) {
	decide := func(
		of Value,
		isOne func(ce.Expression) ce.Expression,
		convert func(Value) (ce.Expression, error),
	) (ce.Expression, bool, error) {
		source, err := of.strict()
		if err != nil {
			return source, true, err
		}
		list, err := convert(of.as(ce.ShapeOfList(ce.Shape{})))
		if err != nil {
			return list, true, err
		}
		one, err := convert(of.as(ce.ShapeOfKind(ce.KindString)))
		return ce.If(isOfType(source, "list"), list, ce.And(isOne(source), one)), true, err
	}
	switch {
	case isUntyped(v):
		isText := func(source ce.Expression) ce.Expression { return isOfType(source, "string") }
		return decide(v, isText, func(typed Value) (ce.Expression, error) { return s.membership(k, operator, typed) })
	case isUntyped(k):
		isScalar := func(source ce.Expression) ce.Expression {
			return ce.And(ce.Not(isOfType(source, "map")), ce.Relate(source, "!=", ce.Term("null")))
		}
		return decide(k, isScalar, func(typed Value) (ce.Expression, error) {
			if typed.kind() == ce.KindString { // a number or a boolean, perhaps
				source, _ := k.strict()
				typed = computedValue(ce.Function("string", source), typed.shape)
			}
			return s.membership(typed, operator, v)
		})
	}
	return ce.False(), false, nil
}

// isUntyped reports whether nothing is known about the type of a value.
func isUntyped(v Value) bool { return !v.isConstant && v.kind() == ce.KindAny }

// as returns the value as one of another shape. Its evaluation fails if it is absent.
func (v Value) as(s ce.Shape) Value {
	e, err := v.strict()
	if err != nil {
		return v
	}
	return placeValue(ce.VariablePlace(e.In(ce.Primary), s))
}

// memberKey is a key of In and its relatives, or an element of one.
type memberKey struct {
	source  ce.Expression
	kind    ce.Kind
	pattern string // the key, if it is constant and has wildcards
	inList  bool
}

// scalarKey returns a key that is no list.
func scalarKey(k Value) (memberKey, error) {
	source, err := k.strict()
	key := memberKey{source: source, kind: k.kind()}
	if text, ok := k.constant.(string); ok && scalar.HasWildcard(text) {
		key.pattern = text
	}
	return key, err
}

// strictValue is a value whose absence fails.
func strictValue(v Value) Value {
	if v.place == nil && (v.when.String() == "" || v.absent == absentNull) {
		return v
	}
	e, err := v.strict()
	if err != nil {
		return v
	}
	return Value{expression: e, shape: v.shape, fails: true}
}

func signedMembership(t *membershipTarget, key memberKey, negated bool) (ce.Expression, error) {
	if t.invalid { // the text can only equal the key
		if t.whole == "" || negated {
			return ce.False(), nil
		}
		text, err := key.text()
		return scalar.MatchWildcard(t.whole, text), err
	}
	e, err := t.contains(key)
	if err != nil || !negated {
		return e, err
	}
	if t.exact && t.value != nil && t.value.kind() == ce.KindString { // which NotIn takes for a list only
		text, err := t.value.strict()
		return ce.And(isListText(text), ce.Not(e)), err
	}
	return ce.Not(e), nil
}

// membershipTarget is the value of In and its relatives.
type membershipTarget struct {
	scope    *Scope
	literals []string
	ranged   string // 1-10
	value    *Value
	exact    bool   // without wildcards in elements of lists
	invalid  bool   // no list
	whole    string // the text that is no list
	fromText bool   // the literals are those of a list in a text
}

func (s *Scope) newTarget(v Value, exact bool) (*membershipTarget, error) {
	t := &membershipTarget{scope: s, exact: exact}
	if !v.isConstant {
		t.value = &v
		if k := v.kind(); k != ce.KindList && k != ce.KindString {
			return nil, leftOut("In and its relatives with a value that is not known to be a list or text")
		}
		return t, nil
	}
	switch c := v.constant.(type) {
	case string:
		var list []string
		switch {
		case json.Valid([]byte(c)) && json.Unmarshal([]byte(c), &list) == nil:
			t.literals, t.fromText = list, true
		case exact:
			t.invalid, t.whole = true, c
		case scalar.IsRange(c):
			t.ranged = c
		case json.Valid([]byte(c)):
			t.invalid, t.whole = true, c
		default:
			t.literals = []string{c}
		}
	case []any:
		for _, element := range c {
			t.literals = append(t.literals, sprintConstant(element))
		}
	default:
		t.invalid = true
	}
	return t, nil
}

func sprintConstant(v any) string {
	switch typed := v.(type) {
	case string:
		return typed
	case int64:
		return strconv.FormatInt(typed, 10)
	case float64:
		return strconv.FormatFloat(typed, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(typed)
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// contains returns an expression for a key that is in the target.
func (t *membershipTarget) contains(key memberKey) (ce.Expression, error) {
	v := key.source
	text, err := key.text()
	if err != nil {
		return text, err
	}
	switch {
	case t.ranged != "":
		if key.kind == ce.KindInt {
			return scalar.InRange(t.ranged, v, true), nil
		}
		return scalar.InRange(t.ranged, text, false), nil
	case t.value != nil && t.value.kind() == ce.KindString:
		return t.isInText(key, text)
	case t.value != nil:
		return t.isElement(key, text)
	case key.kind == ce.KindInt && t.integers():
		return scalar.OneOf(v, termsOf(t.literals)), nil
	case t.exact && key.inList, t.fromText && !key.inList:
		return scalar.OneOf(text, quotesOf(t.literals)), nil
	}
	return scalar.MatchAny(text, t.literals), nil
}

// text returns the key as text.
func (k memberKey) text() (ce.Expression, error) {
	switch k.kind {
	case ce.KindString:
		return k.source, nil
	case ce.KindInt, ce.KindBool, ce.KindIntOrString, ce.KindQuantity, ce.KindAny:
		return ce.Function("string", k.source), nil
	default:
		return ce.False(), leftOut("In and its relatives for lists of maps or lists")
	}
}

// integers reports whether all constants are written like integers.
func (t *membershipTarget) integers() bool {
	return !slices.ContainsFunc(t.literals, func(text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		return err != nil || strconv.FormatInt(n, 10) != text
	})
}

func quotesOf(texts []string) []ce.Expression {
	out := make([]ce.Expression, len(texts))
	for i, t := range texts {
		out[i] = ce.Quote(t)
	}
	return out
}

func termsOf(texts []string) []ce.Expression {
	out := make([]ce.Expression, len(texts))
	for i, t := range texts {
		out[i] = ce.Term(t)
	}
	return out
}

// isInText compares with a text that is not constant: a JSON list of texts, or one text.
// Wildcards have an effect in a whole text and, for keys that are lists, in the elements.
func (t *membershipTarget) isInText(key memberKey, text ce.Expression) (ce.Expression, error) {
	source, err := t.value.strict()
	if err != nil {
		return source, err
	}
	name := "list"
	if p := t.value.place; p != nil && ce.IsVariable(p.Name()) {
		name = p.Name() + "List"
	}
	texts := t.scope.shared(name, textsOf(source))
	trusted := t.value.isFromParams()
	if trusted {
		t.scope.note("a range in %s has no effect, and a list in it with escapes fails the evaluation", source)
	} else {
		t.scope.note(
			"wildcards and ranges in %s have no effect, and a list in it with escapes fails the evaluation",
			source,
		)
	}
	if key.inList {
		return t.hasMatch(key, text, texts, trusted), nil
	}
	e := ce.Relate(text, "in", texts)
	if trusted {
		e = ce.Or(e, scalar.MatchPattern(source, text))
	}
	return e, nil
}

// outOfRange is true for an element of a list that is a number outside of a range. Other text is neither in
// the range nor outside of it.
func (t *membershipTarget) outOfRange(key memberKey) (ce.Expression, error) {
	if key.kind == ce.KindInt {
		return scalar.OutOfRange(t.ranged, key.source, true), nil
	}
	text, err := key.text()
	return scalar.OutOfRange(t.ranged, text, false), err
}

// isElement compares with the elements of a list.
func (t *membershipTarget) isElement(key memberKey, text ce.Expression) (ce.Expression, error) {
	trusted := t.value.isFromParams()
	if t.value.stream != nil {
		if !trusted {
			t.scope.note("the elements of a list of the request are compared as they are, without wildcards")
		}
		return t.value.stream.quantify("exists", func(v Value) (ce.Expression, error) {
			source, err := v.existing()
			if k := v.kind(); k != ce.KindString && k != ce.KindAny {
				source = ce.Function("string", source)
			}
			return t.match(key, text, source, trusted), err
		})
	}
	source, err := t.value.strict()
	if !trusted {
		t.scope.note("the elements of %s are compared as they are, without wildcards", source)
	}
	return t.hasMatch(key, text, source, trusted), err
}

// hasMatch returns an expression for a key that is in a list of texts.
func (t *membershipTarget) hasMatch(key memberKey, text, list ce.Expression, trusted bool) ce.Expression {
	if t.exact && key.inList || key.pattern == "" && !trusted {
		return ce.Relate(text, "in", list)
	}
	element := t.scope.variable(*t.value)
	return ce.Macro(list, "exists", element, t.match(key, text, ce.Term(element), trusted))
}

// match compares a key with an element of a list: either can have wildcards, unless an
// author of an object wrote it.
func (t *membershipTarget) match(key memberKey, text, element ce.Expression, trusted bool) ce.Expression {
	switch {
	case t.exact && key.inList:
	case key.pattern != "" && trusted:
		return ce.Or(scalar.MatchWildcard(key.pattern, element), scalar.MatchPattern(element, text))
	case key.pattern != "":
		return scalar.MatchWildcard(key.pattern, element)
	case trusted:
		return scalar.MatchPattern(element, text)
	}
	return ce.Relate(element, "==", text)
}

// quantify converts an operator for a list as the key.
func (t *membershipTarget) quantify(k Value, operator string) (ce.Expression, error) {
	if t.invalid {
		return t.invalidList(k, operator)
	}
	macro, negated := "exists", false
	switch operator {
	case "in", "allin":
		macro = "all"
	case "allnotin":
		macro, negated = "all", true
	case "anynotin", "notin":
		negated = true
	}
	e, err := k.stream.quantify(macro, func(v Value) (ce.Expression, error) {
		source, err := v.existing()
		if err != nil {
			return source, err
		}
		key := memberKey{source: source, kind: v.kind(), inList: true}
		if operator == "anynotin" && t.ranged != "" {
			return t.outOfRange(key)
		}
		return signedMembership(t, key, negated)
	})
	if err != nil {
		return e, err
	}
	if k.otherwise != nil { // a scalar instead of an empty list
		some, err := k.stream.quantify("exists", func(Value) (ce.Expression, error) { return ce.True(), nil })
		if err != nil {
			return e, err
		}
		instead, err := t.constant(*k.otherwise, strings.Contains(operator, "not"))
		return ce.If(some, e, instead), err
	}
	if macro == "all" { // an absent list is null, for which all operators are false
		e = ce.And(k.stream.present(), e)
	}
	if t.exact && t.value != nil && t.value.kind() == ce.KindString {
		return t.orOnlyElement(k, e, negated)
	}
	return e, nil
}

// constant converts an operator for a constant key.
func (t *membershipTarget) constant(k Value, negated bool) (ce.Expression, error) {
	if t.value != nil || t.ranged != "" {
		key, err := scalarKey(k)
		if err != nil {
			return ce.False(), err
		}
		return signedMembership(t, key, negated)
	}
	if t.invalid {
		return ce.Constant(!negated && t.whole != "" && scalar.MatchesWildcard(t.whole, sprintConstant(k.constant))), nil
	}
	found := slices.ContainsFunc(
		t.literals,
		func(p string) bool { return scalar.MatchesWildcard(p, sprintConstant(k.constant)) },
	)
	return ce.Constant(found != negated), nil
}

// constants converts an operator for a constant list as the key.
func (t *membershipTarget) constants(elements []any, operator string) (ce.Expression, error) {
	if t.invalid {
		isOnly := t.whole != "" && len(elements) == 1 && sprintConstant(elements[0]) == t.whole
		return ce.Constant(isOnly && operator != "anynotin" && operator != "allnotin"), nil
	}
	var all []ce.Expression
	for _, element := range elements {
		key, err := scalarKey(constantValue(element))
		if err != nil {
			return ce.False(), err
		}
		key.inList = true
		e, err := signedMembership(t, key, strings.Contains(operator, "not"))
		if operator == "anynotin" && t.ranged != "" {
			e, err = t.outOfRange(key)
		}
		if err != nil {
			return e, err
		}
		all = append(all, e)
	}
	if operator == "in" || operator == "allin" || operator == "allnotin" {
		return ce.And(all...), nil
	}
	return ce.Or(all...), nil
}
