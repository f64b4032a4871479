package policy

import (
	"context"
	"fmt"
	"time"
	"unique"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	celcommon "k8s.io/apiserver/pkg/cel/common"

	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
)

// batch is the policies of one call that have equal rules, so that they match the same
// requests. Most of them need only the objects: these are first evaluated together,
// without counting costs, and policies with equal expressions share the value, also with
// those of other batches. Only the values true and false are used, and errors with exactly
// the text of Kubernetes. Another error has the expression evaluated again alone, with costs,
// and any other value the policy.
type batch struct {
	policies []*Compiled // sorted by name
	reads    inputs
	quick    *uncounted.Batch // of all batches that share values; nil if it can evaluate nothing
	first    int              // the index of the first of policies in quick
}

// pauseInterval is the time between pauses of a batch. A call costs as much as a small policy.
const pauseInterval = time.Millisecond

// newBatches divides policies, sorted by name, by their rules. The batches share values.
func newBatches(policies []*Compiled) []*batch {
	out := divideByRules(policies)
	shareValues(out)
	return out
}

func divideByRules(policies []*Compiled) []*batch {
	var out []*batch
	byRules := map[unique.Handle[string]]*batch{}
	for _, p := range policies {
		b := byRules[p.rulesKey]
		if b == nil {
			b = &batch{}
			byRules[p.rulesKey] = b
			out = append(out, b)
		}
		b.policies = append(b.policies, p)
		b.reads = b.reads.with(p.reads)
	}
	return out
}

// shareValues has batches share the values of equal expressions if they are evaluated on
// the same subject.
func shareValues(batches []*batch) {
	var quick []*uncounted.Policy
	some := false
	for _, b := range batches {
		b.first = len(quick)
		for _, p := range b.policies {
			quick = append(quick, p.quick)
			some = some || p.quick != nil
		}
	}
	if !some {
		return
	}
	shared := uncounted.NewBatch(quick)
	for _, b := range batches {
		b.quick = shared
	}
}

// evaluation is the evaluation of one policy on one subject.
type evaluation struct {
	policy  *Compiled
	on      *subject
	outcome uncounted.Outcome
	elapsed time.Duration
}

// evaluations lists the policies, by name, with the outcome of those that the batch can
// evaluate.
func (b *batch) evaluations(ctx context.Context, on *subject, host Environment) []evaluation {
	out := make([]evaluation, len(b.policies))
	for i, p := range b.policies {
		out[i].policy, out[i].on = p, on
	}
	if b.quick == nil || on.unreadable != nil {
		return out
	}
	quick, class := on.valuesOf(b.quick)
	if quick == nil {
		return out
	}
	// Match conditions read the resource that the client named in request.resource.
	converted := metav1.GroupVersionResource(on.versioned.GetResource()) != on.raw.Resource
	start := host.Now()
	paused := start
	for i, p := range b.policies {
		if p.quick == nil || !p.quick.Fits(class) || converted && len(p.quick.Conditions) > 0 || ctx.Err() != nil {
			continue
		}
		out[i].outcome = quick.Policy(b.first + i)
		if out[i].outcome == uncounted.Violated && !p.mayRatchet(on) {
			p.decide(ctx, quick, on)
		}
		end := host.Now()
		out[i].elapsed, start = end.Sub(start), end
		if end.Sub(paused) > pauseInterval {
			host.pause(ctx)
			start = host.Now()
			paused = start
		}
	}
	return out
}

// valuesOf returns the values of shared expressions, without any yet for the first batch, and
// the class of the subject. It returns nil if the subject is of no class.
func (on *subject) valuesOf(shared *uncounted.Batch) (*uncounted.Evaluation, uncounted.Class) {
	if on.shared == shared {
		return on.values, on.class
	}
	on.shared = shared
	on.values = nil
	class, ok := uncounted.ClassOf(on.raw, on.versioned)
	if !ok {
		return nil, class
	}
	on.class = class
	on.values = shared.Evaluate(uncounted.Inputs{
		Object:    on.stored.valueOf(&on.versioned.VersionedObject),
		OldObject: on.stored.valueOf(&on.versioned.VersionedOldObject),
		Request:   on,
	}, class)
	return on.values, on.class
}

// RequestValue implements uncounted.Request.
func (on *subject) RequestValue() ref.Val {
	return celcommon.SchemalessTypedToVal(on.admissionRequest())
}

// admissionRequest returns the request that validations read.
func (on *subject) admissionRequest() *admissionv1.AdmissionRequest {
	v := on.versioned
	return celplugin.CreateAdmissionRequest(v.Attributes, on.raw.Resource, metav1.GroupVersionKind(v.VersionedKind))
}

// decide has the validator of Kubernetes make the decisions about a violated policy, from
// values of the batch. The request holds them unless an expression has no result.
func (c *Compiled) decide(ctx context.Context, quick *uncounted.Evaluation, on *subject) {
	validations := make(celengine.Results, len(c.texts.Validations))
	messages := make(celengine.Results, len(c.texts.Validations))
	for i := range validations {
		var ok bool
		if validations[i], ok = c.alone.result(ctx, on, c.alone.validations[i], quick.Validation(i)); !ok {
			return
		}
		if validations[i].Error != nil || validations[i].EvalResult == types.True {
			continue
		}
		message := quick.Message(i)
		if message == nil {
			continue
		}
		if messages[i], ok = c.alone.result(ctx, on, c.alone.messages[i], message); !ok {
			return
		}
	}
	validator := validating.NewValidator(validations, nil, celengine.Results{}, messages, &c.failurePolicy, nil)
	if on.decided == nil {
		on.decided = map[*Compiled]validating.ValidateResult{}
	}
	resource := schema.GroupVersionResource(on.raw.Resource)
	on.decided[c] = validator.Validate(ctx, resource, on.versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil)
}

// aloneExpressions are the expressions of a policy in a batch, with their costs.
type aloneExpressions struct {
	validations, messages []celplugin.CompilationResult
	variables             []celengine.Variable
}

// result returns the result of an expression that has a value in a batch. It returns false if there is none.
func (a *aloneExpressions) result(
	ctx context.Context,
	on *subject,
	compiled celplugin.CompilationResult,
	value ref.Val,
) (celplugin.EvaluationResult, bool) {
	accessor := compiled.ExpressionAccessor
	err, failed := value.(*types.Err)
	switch {
	case !failed:
		return celplugin.EvaluationResult{ExpressionAccessor: accessor, EvalResult: value}, true
	case uncounted.IsExact(err):
		detail := fmt.Sprintf("expression '%v' resulted in error: %v", accessor.GetExpression(), err)
		result := &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: detail}
		return celplugin.EvaluationResult{ExpressionAccessor: accessor, Error: result}, true
	}
	return a.evaluate(ctx, on, compiled)
}

// evaluate evaluates one expression with costs. They cannot exceed the budget, because their bound does not.
func (a *aloneExpressions) evaluate(
	ctx context.Context,
	on *subject,
	compiled celplugin.CompilationResult,
) (celplugin.EvaluationResult, bool) {
	evaluator := celengine.NewConditions([]celplugin.CompilationResult{compiled}, a.variables)
	var none celplugin.OptionalVariableBindings
	budget := int64(celconfig.RuntimeCELCostBudget)
	results, _, err := evaluator.ForInput(ctx, on.versioned, on.admissionRequest(), none, nil, budget)
	if err != nil || len(results) != 1 {
		return celplugin.EvaluationResult{}, false
	}
	return results[0], true
}
