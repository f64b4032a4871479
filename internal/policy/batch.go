package policy

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unique"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	celcommon "k8s.io/apiserver/pkg/cel/common"
)

// batch is the policies of one call that have equal rules, so that they match the same
// requests. Most of them need only the objects: these are first evaluated together,
// without counting costs, and policies with equal expressions share the value. Only the
// values true and false are used. A policy with any other value or an error is evaluated
// again alone, with costs.
type batch struct {
	policies []*Compiled  // sorted by name
	plans    []plan       // of each policy; without slots for one that the batch cannot evaluate
	shared   []*untracked // by slot
	reads    inputs
}

// plan has the slots of a policy's expressions among the shared ones of the batch.
type plan struct {
	names                             []string // of variables
	variables                         []int    // by the index in names
	conditions, validations, messages []int    // noSlot for no message
}

const noSlot = -1

// pauseInterval is the time between pauses of a batch. A call costs as much as a small policy.
const pauseInterval = time.Millisecond

// newBatches divides policies, sorted by name, by their rules.
func newBatches(policies []*Compiled) []*batch {
	var out []*batch
	byRules := map[unique.Handle[string]]*batch{}
	for _, p := range policies {
		b := byRules[p.rules]
		if b == nil {
			b = &batch{}
			byRules[p.rules] = b
			out = append(out, b)
		}
		b.policies = append(b.policies, p)
		b.reads = b.reads.with(p.reads)
	}
	for _, b := range out {
		b.share()
	}
	return out
}

// share finds equal expressions. Two are equal if their texts are, and if the variables
// that they read are equal and have equal names. The value of a variable is limited, that
// of another expression is not.
func (b *batch) share() {
	slotOf := map[string]int{}
	slots := func(kind string, p *plan, all []*untracked) []int {
		out := make([]int, len(all))
		for i, u := range all {
			out[i] = noSlot
			if u == nil {
				continue
			}
			key := fmt.Sprintf("%s%p", kind, u)
			for _, name := range u.reads {
				if at := slices.Index(p.names, name); at >= 0 {
					key += fmt.Sprintf(" %s:%d", name, p.variables[at])
				}
			}
			slot, ok := slotOf[key]
			if !ok {
				slot = len(b.shared)
				slotOf[key], b.shared = slot, append(b.shared, u)
			}
			out[i] = slot
		}
		return out
	}
	b.plans = make([]plan, len(b.policies))
	for i, policy := range b.policies {
		q, p := policy.quick, &b.plans[i]
		if q == nil {
			continue
		}
		for _, v := range q.variables {
			slot := slots("variable ", p, []*untracked{v.untracked})
			p.names, p.variables = append(p.names, v.name), append(p.variables, slot...)
		}
		p.conditions, p.validations, p.messages = slots("", p, q.conditions), slots("", p, q.validations), slots("", p, q.messages)
	}
}

// matches reports whether the policies are for a request.
func (b *batch) matches(r *request, host Environment) bool { return b.policies[0].matches(r, host) }

// batchOutcome is the result of a policy in a batch.
type batchOutcome int

const (
	undecided  batchOutcome = iota // evaluate the policy alone
	satisfied                      // every match condition and every validation is true
	notMatched                     // a match condition is false
	violated                       // every match condition is true, and a validation is false
)

// evaluation is the evaluation of one policy for a request.
type evaluation struct {
	policy  *Compiled
	outcome batchOutcome
	elapsed time.Duration
	on      *request // about a pod template; nil for the request itself
}

// evaluations lists the policies, by name, with the outcome of those that the batch can
// evaluate.
func (b *batch) evaluations(ctx context.Context, r *request, host Environment) []evaluation {
	out := make([]evaluation, len(b.policies))
	for i, p := range b.policies {
		out[i].policy = p
	}
	of, ok := r.class()
	if !ok || r.unreadable != nil || !slices.ContainsFunc(b.policies, func(p *Compiled) bool { return p.quick != nil }) {
		return out
	}
	a := b.activation(r, of)
	// Match conditions read the resource that the client named in request.resource.
	converted := metav1.GroupVersionResource(r.versioned.GetResource()) != r.raw.Resource
	start := host.Now()
	paused := start
	for i, p := range b.policies {
		if p.quick == nil || !p.quick.fits[of] || converted && len(p.quick.conditions) > 0 || ctx.Err() != nil {
			continue
		}
		a.plan = &b.plans[i]
		out[i].outcome = a.evaluate()
		if out[i].outcome == violated && !p.mayRatchet(r) {
			a.decide(ctx, p, r)
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

// activation holds the inputs of the expressions of a batch during one request, and the
// values of the expressions. It implements cel.Activation.
type activation struct {
	request           *request
	object, oldObject any
	requestValue      ref.Val // set by the first expression that reads it
	variables         variableValues
	limit             extent // of variables
	plan              *plan  // of the current policy
	programs          []*untracked
	values            []ref.Val // by slot, nil before the evaluation
	frame             *interpreter.ExecutionFrame
}

func (b *batch) activation(r *request, of class) *activation {
	a := &activation{
		request: r, object: r.stored.valueOf(&r.versioned.VersionedObject), oldObject: r.stored.valueOf(&r.versioned.VersionedOldObject),
		limit: of.extent(), programs: b.shared, values: make([]ref.Val, len(b.shared)),
	}
	a.variables.activation = a
	a.frame = interpreter.AsFrame(a)
	return a
}

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case celplugin.ObjectVarName:
		return a.object, true
	case celplugin.OldObjectVarName:
		return a.oldObject, true
	case celplugin.RequestVarName:
		return a.admissionRequest(), true
	case celplugin.VariableVarName:
		return &a.variables, true
	}
	return nil, false
}

func (a *activation) admissionRequest() ref.Val {
	if a.requestValue == nil {
		v := a.request.versioned
		a.requestValue = celcommon.SchemalessTypedToVal(celplugin.CreateAdmissionRequest(v.Attributes, a.request.raw.Resource, metav1.GroupVersionKind(v.VersionedKind)))
	}
	return a.requestValue
}

// Parent implements cel.Activation.
func (a *activation) Parent() cel.Activation { return nil }

func (a *activation) evaluate() batchOutcome {
	for _, slot := range a.plan.conditions {
		switch a.value(slot) {
		case types.True:
		case types.False:
			return notMatched
		default:
			return undecided
		}
	}
	outcome := satisfied
	for _, slot := range a.plan.validations {
		switch a.value(slot) {
		case types.True:
		case types.False:
			outcome = violated
		default:
			return undecided
		}
	}
	return outcome
}

// value returns the value of an expression, which can be an error.
func (a *activation) value(slot int) ref.Val {
	if a.values[slot] == nil {
		a.values[slot] = a.programs[slot].eval(a.frame)
	}
	return a.values[slot]
}

// decide has the validator of Kubernetes make the decisions about a violated policy, from
// values of the batch. The request holds them unless a message is an error.
func (a *activation) decide(ctx context.Context, p *Compiled, r *request) {
	validations, messages := make(conditionResults, len(a.plan.validations)), make(conditionResults, len(a.plan.validations))
	for i, slot := range a.plan.validations {
		value := a.value(slot)
		validations[i] = celplugin.EvaluationResult{ExpressionAccessor: p.quick.accessors[i], EvalResult: value}
		if message := a.plan.messages[i]; message != noSlot && value == types.False {
			messages[i].EvalResult = a.value(message)
			if types.IsUnknownOrError(messages[i].EvalResult) {
				return
			}
		}
	}
	validator := validating.NewValidator(validations, nil, conditionResults{}, messages, &p.failurePolicy, nil)
	if r.decided == nil {
		r.decided = map[*Compiled]validating.ValidateResult{}
	}
	r.decided[p] = validator.Validate(ctx, schema.GroupVersionResource(r.raw.Resource), r.versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil)
}

// conditionResults are the results of conditions that have been evaluated.
type conditionResults []celplugin.EvaluationResult

// ForInput implements celplugin.ConditionEvaluator.
func (r conditionResults) ForInput(_ context.Context, _ *admission.VersionedAttributes, _ *admissionv1.AdmissionRequest, _ celplugin.OptionalVariableBindings, _ *corev1.Namespace, budget int64) ([]celplugin.EvaluationResult, int64, error) {
	return r, budget, nil
}

// CompilationErrors implements celplugin.ConditionEvaluator.
func (conditionResults) CompilationErrors() []error { return nil }

// variableValues is the value of the CEL variable "variables". A variable is evaluated
// when the first policy reads it.
type variableValues struct{ activation *activation }

// Find implements traits.Mapper.
func (v *variableValues) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	a := v.activation
	at := slices.Index(a.plan.names, string(name))
	if at < 0 {
		return nil, false
	}
	slot := a.plan.variables[at]
	if a.values[slot] == nil {
		a.values[slot] = a.limited(a.value(slot))
	}
	return a.values[slot], true
}

// limited returns an error for a value that is larger than the bounds of costs permit.
func (a *activation) limited(value ref.Val) ref.Val {
	switch {
	case types.IsUnknownOrError(value):
		return value
	case !within(value, a.limit):
		return types.NewErr("the value of the variable is too large to evaluate without counting costs")
	}
	if list, ok := value.(traits.Lister); ok {
		return flat(list)
	}
	return value
}

// within reports whether a value is within an extent. Objects of the request are.
func within(value ref.Val, limit extent) bool {
	switch v := value.(type) {
	case types.String:
		return float64(len(v)) <= limit.text
	case types.Bytes:
		return float64(len(v)) <= limit.text
	case *types.Optional:
		return !v.HasValue() || within(v.GetValue(), limit)
	case traits.Mapper:
		if _, ok := v.Value().(map[string]any); ok {
			return true
		}
		return elementsWithin(v, v, limit)
	case traits.Lister:
		return elementsWithin(v, v, limit)
	}
	return true
}

func elementsWithin(v interface {
	traits.Sizer
	traits.Iterable
}, indexed traits.Indexer, limit extent) bool {
	if size, ok := v.Size().(types.Int); !ok || float64(size) > limit.elements {
		return false
	}
	_, isMap := v.(traits.Mapper)
	for it := v.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		if !within(next, limit) || isMap && !within(indexed.Get(next), limit) {
			return false
		}
	}
	return true
}

// Get implements traits.Indexer.
func (v *variableValues) Get(key ref.Val) ref.Val {
	if value, ok := v.Find(key); ok {
		return value
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (v *variableValues) Contains(key ref.Val) ref.Val {
	value, ok := v.Find(key)
	if ok && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(ok)
}

// The other operations of a value end the evaluation with an error.

// Iterator implements traits.Iterable.
func (v *variableValues) Iterator() traits.Iterator {
	return types.NewDynamicList(types.DefaultTypeAdapter, []any{}).Iterator()
}

// Size implements traits.Sizer.
func (v *variableValues) Size() ref.Val { return types.NoSuchOverloadErr() }

// ConvertToNative implements ref.Val.
func (v *variableValues) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("variables cannot be converted")
}

// ConvertToType implements ref.Val.
func (v *variableValues) ConvertToType(ref.Type) ref.Val { return types.NoSuchOverloadErr() }

// Equal implements ref.Val.
func (v *variableValues) Equal(ref.Val) ref.Val { return types.NoSuchOverloadErr() }

// Type implements ref.Val.
func (v *variableValues) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (v *variableValues) Value() any { return v }
