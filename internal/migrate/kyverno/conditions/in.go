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
	case k.kind() == ce.KindAny:
		return ce.False(), leftOut("%s of a value that may be a list or not: its type is not known", operator)
	}
	source, err := k.strict()
	if err != nil {
		return source, err
	}
	return signedMembership(target, source, k.kind(), negated)
}

// strictValue is a value whose absence fails.
func strictValue(v Value) Value {
	e, err := v.strict()
	if err != nil || v.place == nil {
		return v
	}
	return Value{expression: e, shape: v.shape, fails: true}
}

func signedMembership(t *membershipTarget, source ce.Expression, k ce.Kind, negated bool) (ce.Expression, error) {
	e, err := t.contains(source, k)
	if t.invalid {
		return ce.False(), nil // both In and NotIn
	}
	if negated {
		return ce.Not(e), err
	}
	return e, err
}

// membershipTarget is the value of In and its relatives.
type membershipTarget struct {
	scope    *Scope
	literals []string
	ranged   string // 1-10
	value    *Value
	exact    bool // without wildcards in elements of lists
	invalid  bool
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
		case scalar.IsRange(c):
			t.ranged = c
		case json.Valid([]byte(c)) && json.Unmarshal([]byte(c), &list) == nil:
			t.literals = list
		case json.Valid([]byte(c)) && !json.Valid([]byte(`"`+c+`"`)):
			t.invalid = true
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

// contains returns an expression for a value that is in the target.
func (t *membershipTarget) contains(v ce.Expression, k ce.Kind) (ce.Expression, error) {
	text := v
	switch k {
	case ce.KindString:
	case ce.KindInt, ce.KindBool, ce.KindIntOrString, ce.KindQuantity, ce.KindAny:
		text = ce.Function("string", v)
	default:
		return ce.False(), leftOut("In and its relatives for lists of maps or lists")
	}
	switch {
	case t.ranged != "":
		if k == ce.KindInt {
			return scalar.InRange(t.ranged, v, true), nil
		}
		return scalar.InRange(t.ranged, text, false), nil
	case t.value != nil:
		return t.hasValue(text)
	case k == ce.KindInt && t.integers():
		return scalar.OneOf(v, termsOf(t.literals)), nil
	}
	return scalar.MatchAny(text, t.literals), nil
}

// integers reports whether all constants are written like integers.
func (t *membershipTarget) integers() bool {
	return !slices.ContainsFunc(t.literals, func(text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		return err != nil || strconv.FormatInt(n, 10) != text
	})
}

func termsOf(texts []string) []ce.Expression {
	out := make([]ce.Expression, len(texts))
	for i, t := range texts {
		out[i] = ce.Term(t)
	}
	return out
}

// hasValue compares with a value of the request.
func (t *membershipTarget) hasValue(text ce.Expression) (ce.Expression, error) {
	if t.value.kind() == ce.KindString {
		source, err := t.value.strict()
		t.scope.note("%s is compared as it is, without wildcards and ranges", source)
		return ce.Relate(text, "==", source), err
	}
	if t.value.stream != nil {
		e, err := t.value.stream.quantify("exists", func(v Value) (ce.Expression, error) {
			source, err := v.existing()
			if k := v.kind(); k != ce.KindString && k != ce.KindAny {
				source = ce.Function("string", source)
			}
			return ce.Relate(source, "==", text), err
		})
		t.scope.note("the elements of a list of the request are compared as they are, without wildcards")
		return e, err
	}
	source, err := t.value.strict()
	t.scope.note("the elements of %s are compared as they are, without wildcards", source)
	return ce.Relate(text, "in", source), err
}

// quantify converts an operator for a list as the key.
func (t *membershipTarget) quantify(k Value, operator string) (ce.Expression, error) {
	if t.invalid {
		return ce.False(), nil
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
		return signedMembership(t, source, v.kind(), negated)
	})
	if err != nil {
		return e, err
	}
	if k.otherwise != nil { // a scalar instead of an empty list
		some, err := k.stream.quantify("exists", func(Value) (ce.Expression, error) { return ce.True(), nil })
		if err != nil {
			return e, err
		}
		source, err := k.otherwise.strict()
		if err != nil {
			return e, err
		}
		instead, err := t.constant(k.otherwise.constant, source, strings.Contains(operator, "not"))
		return ce.If(some, e, instead), err
	}
	if macro == "all" { // an absent list is null, for which all operators are false
		e = ce.And(k.stream.present(), e)
	}
	return e, nil
}

// constant converts an operator for a constant key.
func (t *membershipTarget) constant(c any, source ce.Expression, negated bool) (ce.Expression, error) {
	if t.value != nil || t.ranged != "" {
		return signedMembership(t, source, kindOf(c), negated)
	}
	found := slices.ContainsFunc(
		t.literals,
		func(p string) bool { return scalar.MatchesWildcard(p, sprintConstant(c)) },
	)
	return ce.Constant(found != negated && !t.invalid), nil
}

// constants converts an operator for a constant list as the key.
func (t *membershipTarget) constants(elements []any, operator string) (ce.Expression, error) {
	var all []ce.Expression
	for _, element := range elements {
		source, err := literalExpression(element)
		if err != nil {
			return source, err
		}
		e, err := signedMembership(t, source, kindOf(element), strings.Contains(operator, "not"))
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
