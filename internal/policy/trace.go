package policy

import (
	"context"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/lookups"
)

// Trace gets what the policies of a tracing compiler evaluate for one request. Its
// functions are called one after the other. Nil functions are allowed.
type Trace struct {
	Expression func(Evaluated)
	Invocation func(Invoked)
	Exception  func(TriedException)
	Lookup     func(LookedUp)
}

// LookedUp is one search of a lookup. Keys and values can be those of Secrets: see lookups.Definition.
type LookedUp struct {
	Policy, Lookup string
	Definition     lookups.Definition
	Query          lookups.Query
	Found          []lookups.Value
	Template       string // the path of the evaluated pod template, empty for the object itself
	Err            error
}

// Evaluated is one evaluation of one expression.
type Evaluated struct {
	Policy string
	// Field is the path of the expression, as "spec.validations[0].expression".
	Field string
	// Value is the result; nil after an error.
	Value ref.Val
	Err   error
	// Cost does not include that of variables, which have evaluations of their own.
	Cost uint64
	// Stored reports that the object is the stored one: see ratchet.
	Stored bool
	// State has the values of the sub-expressions, by the ids of Compiler.Parse. In a loop
	// it has those of the last element.
	State interpreter.EvalState
}

// Invoked is the result of one policy with one of its bindings and params.
type Invoked struct {
	Policy, Binding string
	// Param is nil without a param.
	Param    runtime.Object
	Mutating bool
	// Template is the path of the evaluated pod template, empty for the object itself.
	Template  string
	Actions   []admissionregistrationv1.ValidationAction
	Decisions []TracedDecision
	// Annotations are the values of audit annotations, by key.
	Annotations map[string]string
	// Changed reports whether a mutation changed the object.
	Changed bool
	// Skipped reports whether a match condition was false.
	Skipped bool
	// Excepted is the exception that leaves out a mutation; empty without one.
	Excepted string
	// Err is the reason why there is no result.
	Err error
}

// TracedDecision is the decision of one validation, by its index, or of a plugin.
type TracedDecision struct {
	Denied, Failed bool // Failed is an error of the evaluation
	Message        string
	Reason         metav1.StatusReason
	Code           int32
	// Validation is the name of the validation, empty without one.
	Validation string
	// Ratcheted reports that the validation is false for the stored object too, and
	// therefore does not deny.
	Ratcheted bool
	// Excepted is the exception that lets a false validation pass; empty without one.
	Excepted string
}

type traceKey struct{}

// WithTrace returns a context for evaluations that are traced.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

func traceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

// tracedProgram reports each evaluation.
type tracedProgram struct {
	cel.Program
	state         cel.Program
	policy, field string
}

// ContextEval implements cel.Program.
func (p tracedProgram) ContextEval(ctx context.Context, input any) (ref.Val, *cel.EvalDetails, error) {
	value, details, err := p.Program.ContextEval(ctx, input)
	if report := traceOf(ctx).Expression; report != nil {
		e := Evaluated{Policy: p.policy, Field: p.field, Value: value, Err: err}
		if cost := details.ActualCost(); cost != nil {
			e.Cost = *cost
		}
		// The input keeps the values of variables, and the request those of its authorizer.
		if _, again, _ := p.state.ContextEval(ctx, input); again != nil {
			e.State = again.State()
		}
		report(e)
	}
	return value, details, err
}

// traced adds reports to a program of the compiler. Policies share programs, so each gets
// its own copy. second compiles the expression with another compiler.
func (b *builder) traced(
	path *field.Path,
	p *celengine.Program,
	second func(*celengine.Compiler) *celengine.Program,
) *celengine.Program {
	if b.compiler.states == nil || p.Result.Program == nil {
		return p
	}
	state := second(b.compiler.states)
	if state.Result.Program == nil { // it compiled before
		return p
	}
	b.programs = append(b.programs, p, state) // keep the shared ones alive
	out := *p
	out.Result.Program = tracedProgram{
		Program: p.Result.Program,
		state:   state.Result.Program,
		policy:  b.policy.Name,
		field:   path.String(),
	}
	return &out
}

// traceResults reports the results of a policy in the validating phase.
func (c *Compiled) traceResults(ctx context.Context, results []result) {
	report := traceOf(ctx).Invocation
	if report == nil {
		return
	}
	for i := range results {
		r := &results[i]
		out := Invoked{Policy: c.name, Binding: r.binding.name, Param: r.param, Template: r.template, Actions: r.actions(), Err: r.err}
		out.Skipped = r.err == nil && len(r.decisions) == 0 && len(r.annotations) == 0
		for j, d := range r.decisions {
			denied := d.Action != validating.ActionAdmit
			v := r.validation(j)
			out.Decisions = append(out.Decisions, TracedDecision{
				Denied: denied, Failed: isError(d), Validation: v.name, Ratcheted: v.ratcheted != "", Excepted: v.exception(),
				Message: d.Message, Reason: d.Reason, Code: r.code(j),
			})
		}
		for _, a := range r.annotations {
			if a.Action == validating.AuditAnnotationActionError {
				out.Decisions = append(out.Decisions, TracedDecision{Denied: true, Failed: true, Message: a.Error})
			}
			if a.Action == validating.AuditAnnotationActionPublish {
				if out.Annotations == nil {
					out.Annotations = map[string]string{}
				}
				out.Annotations[a.Key] = a.Value
			}
		}
		report(out)
	}
}

// traceStep reports the result of a step of the mutating phase.
func (s *step) traceStep(ctx context.Context, outcome Decision) {
	report := traceOf(ctx).Invocation
	if report == nil {
		return
	}
	out := Invoked{Policy: s.policy.name, Binding: s.binding.name, Param: s.param, Mutating: true, Template: s.on.template, Err: s.err,
		Changed: outcome == DecisionMutate, Skipped: outcome == DecisionSkip}
	if s.excepted != nil {
		out.Excepted = s.excepted.String()
	}
	for _, r := range s.refusals {
		out.Decisions = append(out.Decisions, TracedDecision{Denied: true, Message: r.Message, Reason: r.Reason, Code: r.Code})
	}
	report(out)
}
