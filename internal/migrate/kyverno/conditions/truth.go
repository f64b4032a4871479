package conditions

import (
	"slices"

	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// truth converts a node to a boolean: null, false and empty values are false.
func (s *Scope) truth(n jmespath.ASTNode, current *Value) (ce.Expression, error) {
	switch n.NodeType {
	case jmespath.ASTNotExpression:
		e, err := s.truth(n.Children[0], current)
		return ce.Not(e), err
	case jmespath.ASTAndExpression, jmespath.ASTOrExpression:
		left, err := s.truth(n.Children[0], current)
		if err != nil {
			return left, err
		}
		right, err := s.truth(n.Children[1], current)
		isAnd := n.NodeType == jmespath.ASTAndExpression
		switch fails := callsFunction(n.Children[0]) && !left.IsConstant(); { // in CEL, the other side would hide the failure
		case isAnd && fails:
			return ce.Raw(left.In(ce.Disjunction)+" ? "+right.In(ce.Disjunction)+" : false", ce.Conditional), err
		case fails:
			return ce.Raw(left.In(ce.Disjunction)+" ? true : "+right.In(ce.Disjunction), ce.Conditional), err
		case isAnd:
			return ce.And(left, right), err
		}
		return ce.Or(left, right), err
	case jmespath.ASTComparator:
		return s.comparison(n, current)
	}
	v, err := s.compile(n, current)
	if err != nil {
		return ce.False(), err
	}
	return truthOf(v)
}

// callsFunction reports whether a node calls a function, which can fail.
func callsFunction(n jmespath.ASTNode) bool {
	return n.NodeType == jmespath.ASTFunctionExpression || slices.ContainsFunc(n.Children, callsFunction)
}

func truthOf(v Value) (ce.Expression, error) {
	if v.isConstant {
		return ce.Constant(!isEmpty(v.constant)), nil
	}
	if v.stream != nil {
		return v.stream.quantify("exists", func(Value) (ce.Expression, error) { return ce.True(), nil })
	}
	compare := func(empty string) (ce.Expression, error) {
		e, err := v.orElse(empty)
		return ce.Relate(e, "!=", ce.Term(empty)), err
	}
	switch v.kind() {
	case ce.KindBool:
		e, err := v.orElse("false")
		return ce.Dynamic(e), err
	case ce.KindString:
		return compare(`""`)
	case ce.KindList:
		return compare("[]")
	case ce.KindMap:
		return compare("{}")
	case ce.KindInt, ce.KindNumber, ce.KindIntOrString, ce.KindQuantity:
		return v.present(), nil
	case ce.KindAny:
		e, err := v.orElse(nullText)
		var all []ce.Expression
		for _, empty := range []string{"null", "false", `""`, "[]", "{}"} {
			all = append(all, ce.Relate(e, "!=", ce.Term(empty)))
		}
		return ce.And(all...), err
	}
	return ce.False(), leftOut("a condition on a list of lists")
}

// operators of comparators, by the position of their token in JMESPath's lexer.
func operatorOf(n jmespath.ASTNode) (string, bool) {
	for _, o := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		parsed, err := jmespath.NewParser().Parse("a " + o + " b")
		if err == nil && parsed.Value == n.Value {
			return o, true
		}
	}
	return "", false
}

// comparison converts a comparator. Null equals only null, and is not ordered.
func (s *Scope) comparison(n jmespath.ASTNode, current *Value) (ce.Expression, error) {
	operator, known := operatorOf(n)
	left, err := s.compile(n.Children[0], current)
	if err != nil || !known {
		return ce.False(), err
	}
	right, err := s.compile(n.Children[1], current)
	if err != nil {
		return ce.False(), err
	}
	if left.isConstant && !right.isConstant {
		left, right = right, left
		operator = mirroredOperator(operator)
	}
	switch operator {
	case "==":
		return equalJSON(left, right)
	case "!=":
		e, err := equalJSON(left, right)
		return ce.Not(e), err
	}
	return orderNumbers(left, operator, right)
}

func mirroredOperator(operator string) string {
	switch operator {
	case "<":
		return ">"
	case ">":
		return "<"
	case "<=":
		return ">="
	case ">=":
		return "<="
	}
	return operator
}

// equalJSON converts left == right with the equality of JSON values.
func equalJSON(left, right Value) (ce.Expression, error) {
	if !right.isConstant {
		return equalValues(left, right)
	}
	if right.constant == nil {
		return ce.Not(left.present()), nil
	}
	return equalConstant(left, right)
}

func equalConstant(left, right Value) (ce.Expression, error) {
	e, err := literalExpression(right.constant)
	if err != nil {
		return ce.False(), err
	}
	if left.isConstant {
		l, err := literalExpression(left.constant)
		return ce.Constant(l.String() == e.String()), err
	}
	if left.kind() == ce.KindBool && right.kind() == ce.KindBool {
		value, err := left.orElse(ce.Not(e).String())
		if right.constant == true {
			return ce.Dynamic(value), err
		}
		return ce.Not(value), err
	}
	absent, ok := absentFor(left.kind(), right)
	if !ok {
		return ce.False(), nil
	}
	value, err := left.orElse(absent)
	return ce.Relate(value, "==", e), err
}

// absentFor returns a value that differs from a constant, for the case that a field of a
// kind is absent. It returns false if no field of the kind equals the constant.
func absentFor(kind ce.Kind, constant Value) (value string, ok bool) {
	switch {
	case kind == constant.kind() && kind == ce.KindString && constant.constant != "":
		return `""`, true
	case kind == constant.kind() && kind == ce.KindInt && constant.constant != int64(0):
		return "0", true
	}
	return nullText, kind == constant.kind() || kind == ce.KindAny || kind == ce.KindIntOrString ||
		kind == ce.KindQuantity
}

func equalValues(left, right Value) (ce.Expression, error) {
	l, err := left.orElse(nullText)
	if err != nil {
		return ce.False(), err
	}
	r, err := right.orElse(nullText)
	return ce.Relate(l, "==", r), err
}

func orderNumbers(left Value, operator string, right Value) (ce.Expression, error) {
	for _, v := range []Value{left, right} {
		if k := v.kind(); k != ce.KindInt && k != ce.KindNumber {
			return ce.False(), leftOut("the comparison %s of values that are not known to be numbers", operator)
		}
	}
	l, err := left.existing()
	if err != nil {
		return ce.False(), err
	}
	r, err := right.existing()
	return ce.And(left.present(), right.present(), ce.Relate(l, operator, r)), err
}
