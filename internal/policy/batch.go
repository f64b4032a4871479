package policy

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

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
// without counting costs, and policies with the same variable share its value. Only the
// values true and false are used. A policy with any other value or an error is evaluated
// again alone, with costs.
type batch struct {
	policies []*Compiled // sorted by name
	plans    []plan      // of each policy; without slots for one that the batch cannot evaluate
	shared   []*untracked
	reads    inputs
}

// plan says where a policy finds its variables.
type plan struct {
	names []string
	slots []int // of the batch's shared variables, by the index in names
}

// newBatches divides policies, sorted by name, by their rules.
func newBatches(policies []*Compiled) []*batch {
	var out []*batch
	byRules := map[string]*batch{}
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
		b.shareVariables()
	}
	return out
}

// shareVariables finds equal variables. Two are equal if their expressions are, and if
// the variables that these read are equal and have equal names.
func (b *batch) shareVariables() {
	slotOf := map[string]int{}
	b.plans = make([]plan, len(b.policies))
	for i, p := range b.policies {
		if p.quick == nil {
			continue
		}
		for _, v := range p.quick.variables {
			key := fmt.Sprintf("%p", v.untracked)
			for _, name := range v.reads {
				if at := slices.Index(b.plans[i].names, name); at >= 0 {
					key += fmt.Sprintf(" %s:%d", name, b.plans[i].slots[at])
				}
			}
			slot, ok := slotOf[key]
			if !ok {
				slot = len(b.shared)
				slotOf[key], b.shared = slot, append(b.shared, v.untracked)
			}
			b.plans[i].names, b.plans[i].slots = append(b.plans[i].names, v.name), append(b.plans[i].slots, slot)
		}
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
func (b *batch) evaluations(ctx context.Context, r *request) []evaluation {
	out := make([]evaluation, len(b.policies))
	for i, p := range b.policies {
		out[i].policy = p
	}
	of, ok := r.class()
	if !ok || r.unreadable != nil || !slices.ContainsFunc(b.policies, func(p *Compiled) bool { return p.quick != nil }) {
		return out
	}
	a, err := b.activation(r, of)
	if err != nil {
		return out
	}
	// Match conditions read the resource that the client named in request.resource.
	converted := metav1.GroupVersionResource(r.versioned.GetResource()) != r.raw.Resource
	start := time.Now()
	for i, p := range b.policies {
		if p.quick == nil || !p.quick.fits[of] || converted && len(p.quick.conditions) > 0 || ctx.Err() != nil {
			continue
		}
		a.plan = &b.plans[i]
		out[i].outcome = a.evaluate(p.quick)
		if out[i].outcome == violated && !p.mayRatchet(r) {
			a.decide(ctx, p, r)
		}
		now := time.Now()
		out[i].elapsed, start = now.Sub(start), now
	}
	return out
}

// activation holds the inputs of the expressions of a batch during one request. It
// implements cel.Activation.
type activation struct {
	object, oldObject, request any
	variables                  *sharedVariables
	plan                       *plan     // of the current policy
	values                     []ref.Val // of its validations
	frame                      *interpreter.ExecutionFrame
}

func (b *batch) activation(r *request, of class) (*activation, error) {
	object, err := r.versioned.VersionedObject.CELValue()
	if err != nil {
		return nil, err
	}
	oldObject, err := r.versioned.VersionedOldObject.CELValue()
	if err != nil {
		return nil, err
	}
	request := celplugin.CreateAdmissionRequest(r.versioned.Attributes, r.raw.Resource, metav1.GroupVersionKind(r.versioned.VersionedKind))
	a := &activation{object: object, oldObject: oldObject, request: celcommon.SchemalessTypedToVal(request)}
	a.variables = &sharedVariables{activation: a, programs: b.shared, values: make([]ref.Val, len(b.shared)), limit: of.extent()}
	a.frame = interpreter.AsFrame(a)
	return a, nil
}

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case celplugin.ObjectVarName:
		return a.object, true
	case celplugin.OldObjectVarName:
		return a.oldObject, true
	case celplugin.RequestVarName:
		return a.request, true
	case celplugin.VariableVarName:
		return a.variables, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (a *activation) Parent() cel.Activation { return nil }

func (a *activation) evaluate(q *quick) batchOutcome {
	for _, c := range q.conditions {
		switch a.value(c) {
		case types.True:
		case types.False:
			return notMatched
		default:
			return undecided
		}
	}
	outcome := satisfied
	a.values = a.values[:0]
	for _, v := range q.validations {
		value := a.value(v)
		a.values = append(a.values, value)
		switch value {
		case types.True:
		case types.False:
			outcome = violated
		default:
			return undecided
		}
	}
	return outcome
}

// value returns the value of an expression, which can be an error. A panic is one too.
func (a *activation) value(u *untracked) ref.Val {
	value, _, err := u.program.Eval(a.frame)
	if err != nil {
		return types.WrapErr(err)
	}
	return value
}

// decide has the validator of Kubernetes make the decisions about a violated policy, from
// values of the batch. The request holds them unless a message is an error.
func (a *activation) decide(ctx context.Context, p *Compiled, r *request) {
	validations, messages := make(conditionResults, len(a.values)), make(conditionResults, len(a.values))
	for i, value := range a.values {
		validations[i] = celplugin.EvaluationResult{ExpressionAccessor: p.quick.accessors[i], EvalResult: value}
		if message := p.quick.messages[i]; message != nil && value == types.False {
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

// sharedVariables is the value of the CEL variable "variables". It evaluates each shared
// variable when the first policy reads it.
type sharedVariables struct {
	activation *activation
	programs   []*untracked
	values     []ref.Val
	limit      extent
}

// Find implements traits.Mapper.
func (s *sharedVariables) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	at := slices.Index(s.activation.plan.names, string(name))
	if at < 0 {
		return nil, false
	}
	slot := s.activation.plan.slots[at]
	if s.values[slot] == nil {
		s.values[slot] = s.evaluate(s.programs[slot])
	}
	return s.values[slot], true
}

// evaluate returns an error for a value that is larger than the bounds of costs permit.
func (s *sharedVariables) evaluate(u *untracked) ref.Val {
	value := s.activation.value(u)
	if types.IsUnknownOrError(value) {
		return value
	}
	if !within(value, s.limit) {
		return types.NewErr("the value of the variable is too large to evaluate without counting costs")
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
func (s *sharedVariables) Get(key ref.Val) ref.Val {
	if v, ok := s.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (s *sharedVariables) Contains(key ref.Val) ref.Val {
	v, ok := s.Find(key)
	if ok && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(ok)
}

// The other operations of a value end the evaluation with an error.

// Iterator implements traits.Iterable.
func (s *sharedVariables) Iterator() traits.Iterator {
	return types.NewDynamicList(types.DefaultTypeAdapter, []any{}).Iterator()
}

// Size implements traits.Sizer.
func (s *sharedVariables) Size() ref.Val { return types.NoSuchOverloadErr() }

// ConvertToNative implements ref.Val.
func (s *sharedVariables) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("variables cannot be converted")
}

// ConvertToType implements ref.Val.
func (s *sharedVariables) ConvertToType(ref.Type) ref.Val { return types.NoSuchOverloadErr() }

// Equal implements ref.Val.
func (s *sharedVariables) Equal(ref.Val) ref.Val { return types.NoSuchOverloadErr() }

// Type implements ref.Val.
func (s *sharedVariables) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (s *sharedVariables) Value() any { return s }
