package uncounted

import (
	"math"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// margin is how far below the limits of costs the bounds have to be.
const margin = 2

// Policy has the expressions of a policy.
type Policy struct {
	Conditions, Validations []*Expression
	Messages                []*Expression // of each validation, nil without one
	Annotations             []*Expression
	Variables               []Variable

	fits  [classes]bool           // whether the bounds permit it to skip the counting of costs
	least map[*Expression]float64 // bounds for the smallest class, if they depend on variables, and are too large
}

// Variable is a variable of a policy.
type Variable struct {
	Name string
	*Expression

	all Input // that it reads, also by variables
}

// Reads reports whether an expression of the policy reads an input, itself or by a variable.
func (p *Policy) Reads(e *Expression, in Input) bool {
	if e.inputs&in != 0 {
		return true
	}
	for i := len(p.Variables) - 1; i >= 0 && len(e.reads) > 0; i-- {
		if v := &p.Variables[i]; v.all&in != 0 && slices.Contains(e.reads, v.Name) {
			return true
		}
	}
	return false
}

// AddVariable adds a variable, which can read those before it.
func (p *Policy) AddVariable(name string, e *Expression) {
	v := Variable{Name: name, Expression: e}
	for _, in := range []Input{Params, NamespaceObject, Authorizer} {
		if p.Reads(e, in) {
			v.all |= in
		}
	}
	p.Variables = append(p.Variables, v)
}

// AsksAuthorizer reports whether validations ask the authorizer. A batch does not evaluate them.
func (p *Policy) AsksAuthorizer() bool {
	return slices.ContainsFunc(p.Validations, func(e *Expression) bool { return p.Reads(e, Authorizer) })
}

// commonClass is a class of many objects: 64 elements, and 1,024 bytes in a text.
const commonClass = Class(2*len(textClasses) + 1)

// Bound finds for which requests the bounds permit an evaluation without counting costs. It returns false if there
// are none. The syntax trees of the expressions are read if the costs depend on the sizes of variables.
func (c *Compiler) Bound(p *Policy, parsed func(*Expression) *cel.Ast) bool {
	for i := range p.fits {
		p.fits[i] = p.staysWithin(func(e *Expression) float64 { return e.bounds[i] })
	}
	if len(p.Variables) > 0 && !p.fits[commonClass] {
		c.boundWithVariables(p, parsed)
	}
	return slices.Contains(p.fits[:], true)
}

// boundWithVariables finds the same with the sizes that the values of variables can have: a list of words has a few
// elements, whatever the request is. It takes longer than the bounds that all policies with equal expressions share.
func (c *Compiler) boundWithVariables(p *Policy, parsed func(*Expression) *cel.Ast) {
	roots := map[*Expression]ast.Expr{}
	root := func(e *Expression) ast.Expr {
		if roots[e] == nil && e.Program != nil && !p.Reads(e, Authorizer) {
			if checked, issues := c.check.Check(parsed(e)); issues.Err() == nil {
				roots[e] = checked.NativeRep().Expr()
			}
		}
		return roots[e]
	}
	var variables []namedRoot
	for _, v := range p.Variables {
		variables = append(variables, namedRoot{v.Name, root(v.Expression)})
	}
	for i := range p.fits {
		if p.fits[i] {
			continue
		}
		limit := Class(i).extent()
		sizes, costs := sizesOf(variables, limit), map[*Expression]float64{}
		p.fits[i] = p.staysWithin(func(e *Expression) float64 {
			if _, known := costs[e]; !known {
				costs[e] = math.Inf(1)
				if r := root(e); r != nil {
					costs[e], _ = bound(r, limit, sizes)
				}
			}
			return costs[e]
		})
		if !p.fits[i] && i == 0 {
			p.least = costs
		}
	}
}

// namedRoot is the syntax tree of a variable, nil for one that a batch does not evaluate.
type namedRoot struct {
	name string
	root ast.Expr
}

// sizesOf bounds the values of variables, each of which reads those before it. A batch evaluates nothing with a value
// beyond the limit.
func sizesOf(variables []namedRoot, limit extent) map[string]extent {
	sizes := map[string]extent{}
	for _, v := range variables {
		if v.root != nil {
			_, size := bound(v.root, limit, sizes)
			sizes[v.name] = size.within(limit)
		}
	}
	return sizes
}

// Fits reports whether the policy may be evaluated on requests of a class.
func (p *Policy) Fits(class Class) bool { return p.fits[class] }

// staysWithin reports whether no request can exceed a limit of costs with these bounds. Messages count: the native
// validator evaluates them even if all validations are true, and an exceeded budget is then an error. They evaluate
// their variables again. Audit annotations have a budget of their own. Expressions that ask the authorizer are not
// evaluated in a batch, and have to stay within the other half of the budget.
func (p *Policy) staysWithin(costOf func(*Expression) float64) bool {
	var variables []*Expression
	for _, v := range p.Variables {
		variables = append(variables, v.Expression)
	}
	variableCost, variablesFit := p.totalBound(variables, costOf)
	conditionCost, conditionsFit := p.totalBound(p.Conditions, costOf)
	validationCost, validationsFit := p.totalBound(p.Validations, costOf)
	messageCost, messagesFit := p.totalBound(p.Messages, costOf)
	annotationCost, annotationsFit := p.totalBound(p.Annotations, costOf)
	return variablesFit && conditionsFit && validationsFit && messagesFit && annotationsFit &&
		conditionCost+variableCost <= celconfig.RuntimeCELCostBudgetMatchConditions/margin &&
		validationCost+messageCost+2*variableCost <= celconfig.RuntimeCELCostBudget/margin &&
		annotationCost+variableCost <= celconfig.RuntimeCELCostBudget/margin
}

// totalBound returns the bound of expressions together, and whether each of them is within the limit for one.
func (p *Policy) totalBound(all []*Expression, costOf func(*Expression) float64) (total float64, fit bool) {
	fit = true
	for _, e := range all {
		if e == nil || p.Reads(e, Authorizer) {
			continue
		}
		cost := costOf(e)
		total += cost
		fit = fit && e.Program != nil && cost <= celconfig.PerCallLimit/margin
	}
	return total, fit
}
