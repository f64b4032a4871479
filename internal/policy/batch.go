package policy

import (
	"context"
	"time"
	"unique"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	celcommon "k8s.io/apiserver/pkg/cel/common"

	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
)

// batch is the policies of one call that have equal rules, so that they match the same
// requests. Most of them need only the objects: these are first evaluated together,
// without counting costs, and policies with equal expressions share the value, also with
// those of other batches. Only the values true and false are used, and errors with exactly
// the text of Kubernetes. Another error has the expression evaluated again alone, with costs,
// and any other value the policy. Policies that need more, such as params, are evaluated in the
// same way, but later, when their bindings are known: once with each of their params.
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
// evaluate before their bindings are known.
func (b *batch) evaluations(ctx context.Context, on *subject, host Environment) []evaluation {
	out := make([]evaluation, len(b.policies))
	for i, p := range b.policies {
		out[i].policy, out[i].on = p, on
	}
	if b.quick == nil || on.unreadable != nil {
		return out
	}
	quick := on.valuesOf(b.quick)
	class, ok := quick.Read(nil, nil)
	if !ok {
		return out
	}
	// Match conditions read the resource that the client named in request.resource.
	converted := metav1.GroupVersionResource(on.versioned.GetResource()) != on.raw.Resource
	start := host.Now()
	paused := start
	for i, p := range b.policies {
		switch {
		case p.quick == nil, converted && len(p.quick.Conditions) > 0, ctx.Err() != nil:
			continue
		case p.needsMore:
			on.keepForLater(p, b.first+i)
			continue
		case !p.quick.Fits(class):
			continue
		}
		out[i].outcome = quick.Policy(b.first + i)
		if out[i].outcome == uncounted.Violated && !p.mayRatchet(on) {
			on.decide(ctx, p)
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

// valuesOf returns the values of shared expressions, without any yet for the first batch.
func (on *subject) valuesOf(shared *uncounted.Batch) *uncounted.Evaluation {
	if on.shared != shared {
		on.shared = shared
		on.values = shared.Evaluate(uncounted.Inputs{
			Object:    on.stored.valueOf(&on.versioned.VersionedObject),
			OldObject: on.stored.valueOf(&on.versioned.VersionedOldObject),
			Request:   on,
			Size:      uncounted.SizeOf(on.raw, on.versioned),
		})
	}
	return on.values
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

// decide keeps the decisions about a violated policy, unless an expression has no result.
func (on *subject) decide(ctx context.Context, c *Compiled) {
	result, ok := c.decide(ctx, on, nil, nil)
	if !ok {
		return
	}
	if on.decided == nil {
		on.decided = map[*Compiled]validating.ValidateResult{}
	}
	on.decided[c] = result
}

// laterPolicy is a policy that needs more than the objects and the request.
type laterPolicy struct {
	index int  // in the values that batches share
	alone bool // it was evaluated outside of the batch
}

func (on *subject) keepForLater(c *Compiled, index int) {
	if on.later == nil {
		on.later = map[*Compiled]*laterPolicy{}
	}
	on.later[c] = &laterPolicy{index: index}
}

// evaluateLater evaluates such a policy with one of its params in the batch. It returns false if the policy has to be
// evaluated alone.
func (c *Compiled) evaluateLater(
	ctx context.Context,
	on *subject,
	param runtime.Object,
	namespace *corev1.Namespace,
) (result validating.ValidateResult, ok bool) {
	later := on.later[c]
	if later == nil {
		return validating.ValidateResult{}, false
	}
	defer func() { later.alone = later.alone || !ok }()
	if !c.readInBatch(on, param, namespace) {
		return validating.ValidateResult{}, false
	}
	switch outcome := on.values.Policy(later.index); {
	case outcome == uncounted.Undecided, (outcome == uncounted.Violated || c.alone.asks) && c.mayRatchet(on):
		return validating.ValidateResult{}, false
	case outcome == uncounted.NotMatched:
		return validating.ValidateResult{}, true
	case outcome == uncounted.Satisfied && !c.alone.asks && len(c.alone.annotations) == 0:
		return validating.ValidateResult{Decisions: admitted(len(c.texts.Validations))}, true
	}
	return c.decide(ctx, on, param, namespace)
}

// admitted returns the decisions about validations that are true.
func admitted(n int) []validating.PolicyDecision {
	out := make([]validating.PolicyDecision, n)
	for i := range out {
		out[i] = validating.PolicyDecision{Action: validating.ActionAdmit, Evaluation: validating.EvalAdmit}
	}
	return out
}

// readInBatch has the batch read a param and the namespace. It returns false if they are too large for the policy, or if
// the param is no JSON object.
func (c *Compiled) readInBatch(on *subject, object runtime.Object, namespace *corev1.Namespace) bool {
	var value *uncounted.Namespace
	if c.reads.namespace {
		if on.namespaceValue == nil {
			on.namespaceValue = uncounted.NewNamespace(namespace)
		}
		value = on.namespaceValue
	}
	var params *unstructured.Unstructured
	if object != nil {
		p, ok := object.(param)
		if !ok || p.Object == nil {
			return false
		}
		params = p.Unstructured
	}
	class, ok := on.values.Read(params, value)
	return ok && c.quick.Fits(class)
}

// decide has the validator of Kubernetes make the decisions about a policy that matches, from values of the batch. It
// returns false if an expression has no result.
func (c *Compiled) decide(
	ctx context.Context,
	on *subject,
	param runtime.Object,
	namespace *corev1.Namespace,
) (validating.ValidateResult, bool) {
	a := newAloneEvaluation(c, on, param, namespace)
	quick := on.values
	validations := make(celengine.Results, len(c.texts.Validations))
	messages := make(celengine.Results, len(c.texts.Validations))
	for i := range validations {
		var ok bool
		if validations[i], ok = a.result(ctx, c.alone.validations[i], quick.Validation(i)); !ok {
			return validating.ValidateResult{}, false
		}
		if validations[i].Error != nil || validations[i].EvalResult == types.True {
			continue
		}
		message := quick.Message(i)
		if message == nil {
			continue
		}
		if messages[i], ok = a.result(ctx, c.alone.messages[i], message); !ok {
			return validating.ValidateResult{}, false
		}
	}
	annotations := make(celengine.Results, len(c.alone.annotations))
	for i := range annotations {
		var ok bool
		if annotations[i], ok = a.result(ctx, c.alone.annotations[i], quick.Annotation(i)); !ok {
			return validating.ValidateResult{}, false
		}
	}
	validator := validating.NewValidator(validations, nil, annotations, messages, &c.failurePolicy, nil)
	resource := schema.GroupVersionResource(on.raw.Resource)
	budget := int64(celconfig.RuntimeCELCostBudget)
	return validator.Validate(ctx, resource, on.versioned, nil, nil, budget, nil), true
}
