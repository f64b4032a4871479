package policy

import (
	"slices"
	"strings"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// margin is how far below the limits of costs the bounds have to be.
const margin = 2

// quick is a policy that a batch evaluates: match conditions, validations and variables.
type quick struct {
	conditions, validations, messages []*untracked
	variables                         []quickVariable
	fits                              [classes]bool // whether the bounds permit it to skip the counting of costs
}

type quickVariable struct {
	name string
	*untracked
}

// batchable reports whether a policy needs only the objects and the request, writes no
// audit annotations, and applies wherever it matches.
func (b *builder) batchable(reads inputs) bool {
	spec := &b.policy.Spec
	if b.compiler.traced || len(b.errs) > 0 || len(spec.Validations) == 0 || len(spec.AuditAnnotations) > 0 || spec.ParamKind != nil || reads.namespace || reads.options {
		return false
	}
	for _, text := range expressions(spec) {
		if strings.Contains(text, "authorizer") {
			return false
		}
	}
	return !slices.ContainsFunc(spec.Bindings, func(b v1alpha1.Binding) bool { return b.MatchResources != nil })
}

// quick returns nil for a policy that a batch cannot evaluate.
func (b *builder) quick(reads inputs) *quick {
	if !b.batchable(reads) {
		return nil
	}
	spec := &b.policy.Spec
	q := &quick{}
	compile := func(expression string) *untracked {
		return b.compiler.untracked.compile(expression, b.parsed[expression])
	}
	for _, v := range spec.Variables {
		q.variables = append(q.variables, quickVariable{v.Name, compile(v.Expression)})
	}
	for _, c := range spec.MatchConditions {
		q.conditions = append(q.conditions, compile(c.Expression))
	}
	for _, v := range spec.Validations {
		q.validations = append(q.validations, compile(v.Expression))
		if v.MessageExpression != "" {
			q.messages = append(q.messages, compile(v.MessageExpression))
		}
	}
	for i := range q.fits {
		q.fits[i] = q.fitsClass(class(i))
	}
	if !slices.Contains(q.fits[:], true) {
		return nil
	}
	return q
}

// fitsClass reports whether no request of a class can exceed a limit of costs. Messages
// count: the native validator evaluates them even if all validations are true, and an
// exceeded budget is then an error. They evaluate their variables again.
func (q *quick) fitsClass(of class) bool {
	sum := func(all []*untracked) (total float64, ok bool) {
		ok = true
		for _, u := range all {
			total += u.bounds[of]
			ok = ok && u.program != nil && u.bounds[of] <= celconfig.PerCallLimit/margin
		}
		return total, ok
	}
	var variables []*untracked
	for _, v := range q.variables {
		variables = append(variables, v.untracked)
	}
	variableCost, variablesFit := sum(variables)
	conditionCost, conditionsFit := sum(q.conditions)
	validationCost, validationsFit := sum(q.validations)
	messageCost, messagesFit := sum(q.messages)
	return variablesFit && conditionsFit && validationsFit && messagesFit &&
		conditionCost+variableCost <= celconfig.RuntimeCELCostBudgetMatchConditions/margin &&
		validationCost+messageCost+2*variableCost <= celconfig.RuntimeCELCostBudget/margin
}
