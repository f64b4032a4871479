package uncounted

import (
	"slices"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// margin is how far below the limits of costs the bounds have to be.
const margin = 2

// Policy has the expressions of a policy that needs only the objects and the request.
type Policy struct {
	Conditions, Validations []*Expression
	Messages                []*Expression // of each validation, nil without one
	Variables               []Variable

	fits [classes]bool // whether the bounds permit it to skip the counting of costs
}

// Variable is a variable of a policy.
type Variable struct {
	Name string
	*Expression
}

// Bound finds for which requests the bounds permit an evaluation without counting costs. It returns false if there
// are none.
func (p *Policy) Bound() bool {
	for i := range p.fits {
		p.fits[i] = p.fitsClass(Class(i))
	}
	return slices.Contains(p.fits[:], true)
}

// Fits reports whether the policy may be evaluated on requests of a class.
func (p *Policy) Fits(class Class) bool { return p.fits[class] }

// fitsClass reports whether no request of a class can exceed a limit of costs. Messages count: the native validator
// evaluates them even if all validations are true, and an exceeded budget is then an error. They evaluate their
// variables again.
func (p *Policy) fitsClass(class Class) bool {
	var variables []*Expression
	for _, v := range p.Variables {
		variables = append(variables, v.Expression)
	}
	variableCost, variablesFit := totalBound(variables, class)
	conditionCost, conditionsFit := totalBound(p.Conditions, class)
	validationCost, validationsFit := totalBound(p.Validations, class)
	messageCost, messagesFit := totalBound(p.Messages, class)
	return variablesFit && conditionsFit && validationsFit && messagesFit &&
		conditionCost+variableCost <= celconfig.RuntimeCELCostBudgetMatchConditions/margin &&
		validationCost+messageCost+2*variableCost <= celconfig.RuntimeCELCostBudget/margin
}

// totalBound returns the bound of expressions together, and whether each of them is within the limit for one.
func totalBound(all []*Expression, class Class) (total float64, fit bool) {
	fit = true
	for _, e := range all {
		if e == nil {
			continue
		}
		total += e.bounds[class]
		fit = fit && e.Program != nil && e.bounds[class] <= celconfig.PerCallLimit/margin
	}
	return total, fit
}
