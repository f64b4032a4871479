package policy

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
)

// aloneExpressions are the expressions of a policy in a batch, with their costs.
type aloneExpressions struct {
	validations, messages, annotations []celplugin.CompilationResult
	declared                           celengine.Declared
	asks                               bool // a validation asks the authorizer
}

// aloneEvaluation evaluates single expressions of a policy with costs.
type aloneEvaluation struct {
	*aloneExpressions
	on        *subject
	vars      celplugin.OptionalVariableBindings
	namespace *corev1.Namespace
	left      int64 // of the budget, for validations that ask the authorizer
}

func newAloneEvaluation(c *Compiled, on *subject, param runtime.Object, namespace *corev1.Namespace) *aloneEvaluation {
	a := &aloneEvaluation{
		aloneExpressions: &c.alone,
		on:               on,
		namespace:        celplugin.CreateNamespaceObject(namespace),
		left:             celconfig.RuntimeCELCostBudget / 2, // the bounds of the others are within the other half
	}
	a.vars.VersionedParams = param
	if c.alone.asks {
		a.vars.Authorizer = on.authorizer
	}
	return a
}

// result returns the result of an expression that has a value in a batch, nil if it asks the authorizer. It returns false
// if there is none.
func (a *aloneEvaluation) result(
	ctx context.Context,
	compiled celplugin.CompilationResult,
	value ref.Val,
) (celplugin.EvaluationResult, bool) {
	accessor := compiled.ExpressionAccessor
	err, failed := value.(*types.Err)
	switch {
	case value == nil:
		result, left, ok := a.evaluate(ctx, compiled, a.left)
		a.left = left
		return result, ok
	case uncounted.IsUnfinished(value): // its cost can exceed its bound
		return celplugin.EvaluationResult{}, false
	case !failed:
		return celplugin.EvaluationResult{ExpressionAccessor: accessor, EvalResult: value}, true
	case uncounted.IsExact(err):
		detail := fmt.Sprintf("expression '%v' resulted in error: %v", accessor.GetExpression(), err)
		result := &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: detail}
		return celplugin.EvaluationResult{ExpressionAccessor: accessor, Error: result}, true
	}
	// The cost cannot exceed the budget, because its bound does not.
	result, _, ok := a.evaluate(ctx, compiled, celconfig.RuntimeCELCostBudget)
	return result, ok
}

// evaluate evaluates one expression with costs. It returns the budget that is left.
func (a *aloneEvaluation) evaluate(
	ctx context.Context,
	compiled celplugin.CompilationResult,
	budget int64,
) (celplugin.EvaluationResult, int64, bool) {
	evaluator := celengine.NewConditions([]celplugin.CompilationResult{compiled}, a.declared)
	results, left, err := evaluator.ForInput(ctx, a.on.versioned, a.on.admissionRequest(), a.vars, a.namespace, budget)
	if err != nil || len(results) != 1 {
		return celplugin.EvaluationResult{}, left, false
	}
	return results[0], left, true
}
