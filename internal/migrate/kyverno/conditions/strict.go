package conditions

import (
	"slices"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// failingPart returns what fails if the evaluation of a value does.
func (v Value) failingPart() (ce.Expression, error) {
	if s := v.stream; s != nil && !s.filtered && !s.needsAll {
		return s.source.strict()
	}
	return v.strict()
}

// withSubstituted returns values with those that are replaced in them.
func withSubstituted(values []Value) (out []Value) {
	for _, v := range values {
		out = append(append(out, v), v.substituted...)
	}
	return out
}

// mayFail reports whether the evaluation of one of some values, or of what is replaced in it, can fail.
func mayFail(values ...Value) bool {
	return slices.ContainsFunc(withSubstituted(values), Value.mayFail)
}

// FailingParts returns what fails if the evaluation of one of some values does.
func FailingParts(values []Value) (parts []ce.Expression, err error) {
	for _, v := range withSubstituted(values) {
		if !v.mayFail() {
			continue
		}
		part, err := v.failingPart()
		if err != nil {
			return nil, err
		}
		if !containsExpression(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// Failing is a value whose evaluation can fail.
func Failing(e ce.Expression) Value { return Value{expression: e, fails: true, absent: absentFailure} }

func containsExpression(all []ce.Expression, e ce.Expression) bool {
	return slices.ContainsFunc(all, func(p ce.Expression) bool { return p.String() == e.String() })
}

// WithSubstituted returns a value in whose expression Kyverno replaces some values.
func (v Value) WithSubstituted(values []Value) Value {
	v.substituted = append(slices.Clone(v.substituted), values...)
	return v
}

// hiddenParts returns those parts of values whose failure an expression can hide.
func (s *Scope) hiddenParts(e ce.Expression, values ...Value) (hidden []ce.Expression, err error) {
	for _, v := range withSubstituted(values) {
		if !v.mayFail() {
			continue
		}
		part, err := v.failingPart()
		switch {
		case err != nil:
			return nil, err
		case ce.AlwaysReads(e.String(), part.String()):
		case v.isFromParams(): // authors of params know their keys, and the result stays readable
			s.note("a key that is absent in the ConfigMap denies only requests that it decides: Kyverno denies all of the rule")
		case !containsExpression(hidden, part):
			hidden = append(hidden, part)
		}
	}
	return hidden, nil
}

// forced returns a condition whose evaluation fails wherever that of a value does, as in Kyverno, which
// evaluates both sides of a condition before it compares them.
func (s *Scope) forced(e ce.Expression, values ...Value) (ce.Expression, error) {
	hidden, err := s.hiddenParts(e, values...)
	if err != nil || len(hidden) == 0 {
		return e, err
	}
	return whereEvaluated(e, ce.True(), hidden), nil
}

// forcedValue is forced for a value of a condition, which is not evaluated where it is null.
func (s *Scope) forcedValue(e ce.Expression, v Value) (ce.Expression, error) {
	hidden, err := s.hiddenParts(e, v)
	if err != nil || len(hidden) == 0 {
		return e, err
	}
	return whereEvaluated(e, v.notNull(), hidden), nil
}

// whereEvaluated returns an expression whose evaluation fails if that of a part does, where a guard is true.
func whereEvaluated(e, guard ce.Expression, parts []ce.Expression) ce.Expression {
	parts = independent(parts)
	if len(parts) > 1 { // of several types
		for i := range parts {
			parts[i] = ce.Function("dyn", parts[i])
		}
	}
	evaluated := ce.Relate(ce.Call(ce.List(parts...), "size"), ">", ce.Term("0")) // true, or a failure
	switch {
	case e.IsTrue():
		return ce.Or(ce.Not(guard), evaluated)
	case e.IsFalse():
		return ce.And(guard, ce.Not(evaluated))
	}
	evaluated = ce.Or(ce.Not(guard), evaluated)
	return ce.Raw(evaluated.In(ce.Disjunction)+" ? "+e.In(ce.Disjunction)+" : false", ce.Conditional)
}

// independent returns the parts that no other part reads, and the first of equal ones.
func independent(parts []ce.Expression) (out []ce.Expression) {
	for i, p := range parts {
		isRead := containsExpression(parts[:i], p)
		for _, other := range parts {
			isRead = isRead || other.String() != p.String() && ce.AlwaysReads(other.String(), p.String())
		}
		if !isRead {
			out = append(out, p)
		}
	}
	return out
}

// EvaluatedKeys returns an expression that is true, or whose evaluation fails because that of a condition
// after the first one does. Kyverno evaluates the variables of all of them before it applies a patch.
func (s *Scope) EvaluatedKeys(conditions []Condition) (ce.Expression, error) {
	var parts []ce.Expression
	for _, c := range conditions[min(1, len(conditions)):] {
		for _, side := range []any{c.Key, c.Value} {
			v, err := s.Any(side)
			if err != nil {
				continue // what cannot be converted is reported by the conditions
			}
			failing, err := FailingParts([]Value{v})
			if err != nil {
				return ce.False(), err
			}
			parts = append(parts, failing...)
		}
	}
	if len(parts) == 0 {
		return ce.True(), nil
	}
	return whereEvaluated(ce.True(), ce.True(), parts), nil
}

// both is a && b, of which each can fail. Kyverno evaluates both, so that neither hides a failure.
func both(a, b Result) Result {
	list := ce.List(a.Bool(), b.Bool())
	return Result{ce.Relate(list, "==", ce.List(ce.True(), ce.True())), true}
}
