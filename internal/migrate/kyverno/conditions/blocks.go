package conditions

import (
	"fmt"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Condition is a condition of a policy.
type Condition struct {
	Key      any    `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    any    `json:"value,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Block is a block of conditions: one of any and all of all.
type Block struct {
	Any []Condition `json:"any,omitempty"`
	All []Condition `json:"all,omitempty"`
}

// Block converts a block. Conditions after one that can fail are evaluated after it, as in
// Kyverno, so that its failure counts.
func (s *Scope) Block(b Block) (Result, error) {
	result := Result{Expression: ce.True()}
	if b.Any != nil {
		some, err := s.joinConditions("any", b.Any, ce.False(), orElse)
		if err != nil {
			return Result{}, err
		}
		result = some
	}
	all, err := s.joinConditions("all", b.All, ce.True(), andThen)
	if err != nil {
		return Result{}, err
	}
	switch { // Kyverno evaluates all of both
	case result.Fails && all.Fails && !result.IsTrue() && !all.IsTrue():
		return both(result, all), nil
	case all.Fails:
		return andThen(all, result), nil
	}
	return andThen(result, all), nil
}

// All converts conditions that all have to be true.
func (s *Scope) All(conditions []Condition) (Result, error) {
	return s.joinConditions("conditions", conditions, ce.True(), andThen)
}

func (s *Scope) joinConditions(
	field string,
	conditions []Condition,
	neutral ce.Expression,
	join func(a, b Result) Result,
) (Result, error) {
	var results []Result
	for i, c := range conditions {
		r, err := s.Compare(c.Key, c.Operator, c.Value)
		if err != nil {
			return Result{}, fmt.Errorf("%s[%d]: %w", field, i, err)
		}
		results = append(results, r)
	}
	s.shareConditions(results)
	result := Result{Expression: neutral}
	for i := len(results) - 1; i >= 0; i-- {
		result = join(results[i], result)
	}
	return result, nil
}

// maxNested is the number of conditionals that an expression may have within each other.
const maxNested = 2

// shareConditions makes conditions that can fail variables of the policy, if there are so many that
// their expression would be hard to read: each is a conditional within that of the one before.
func (s *Scope) shareConditions(results []Result) {
	failing := 0
	for _, r := range results {
		if r.Fails && !r.IsConstant() {
			failing++
		}
	}
	if failing <= maxNested {
		return
	}
	for i, r := range results {
		if !r.IsConstant() {
			results[i].Expression = s.shared("condition", r.Bool())
		}
	}
}

// andThen is a && b, where b does not hide a failure of a.
func andThen(a, b Result) Result {
	switch {
	case b.IsTrue():
		return a
	case a.Fails && !a.IsConstant():
		return Result{ce.Raw(a.In(ce.Disjunction)+" ? "+b.In(ce.Disjunction)+" : false", ce.Conditional), true}
	}
	return Result{ce.And(a.Expression, b.Expression), a.Fails || b.Fails}
}

// orElse is a || b, where b does not hide a failure of a.
func orElse(a, b Result) Result {
	switch {
	case b.IsFalse():
		return a
	case a.Fails && !a.IsConstant():
		return Result{ce.Raw(a.In(ce.Disjunction)+" ? true : "+b.In(ce.Conditional), ce.Conditional), true}
	}
	return Result{ce.Or(a.Expression, b.Expression), a.Fails || b.Fails}
}
