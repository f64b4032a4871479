package policy

import (
	"context"
	"time"
	"unique"

	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celcommon "k8s.io/apiserver/pkg/cel/common"

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
	return b.appendEvaluations(ctx, make([]evaluation, 0, len(b.policies)), on, host)
}

// appendEvaluations appends what evaluations lists.
func (b *batch) appendEvaluations(ctx context.Context, all []evaluation, on *subject, host Environment) []evaluation {
	before := len(all)
	for _, p := range b.policies {
		all = append(all, evaluation{policy: p, on: on})
	}
	if b.quick != nil && on.unreadable == nil {
		b.evaluate(ctx, all[before:], on, host)
	}
	return all
}

// evaluate adds the outcomes of the policies that the batch can evaluate before their bindings are known.
func (b *batch) evaluate(ctx context.Context, out []evaluation, on *subject, host Environment) {
	quick := on.valuesOf(b.quick)
	class, ok := quick.Read(nil, nil)
	if !ok {
		return
	}
	var violated []policyResults
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
			if r, ok := p.results(ctx, on, nil, nil); ok {
				violated = append(violated, r)
			}
		}
		end := host.Now()
		out[i].elapsed, start = end.Sub(start), end
		if end.Sub(paused) > pauseInterval {
			host.pause(ctx)
			start = host.Now()
			paused = start
		}
	}
	on.decide(ctx, violated)
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

// releaseValues lets another request use the memory of the values.
func (on *subject) releaseValues() {
	if on.values != nil {
		on.values.Release()
	}
	on.shared, on.values = nil, nil
}

// RequestValue implements uncounted.Request.
func (on *subject) RequestValue() ref.Val {
	return celcommon.SchemalessTypedToVal(on.admissionRequest())
}

// admissionRequest returns the request that validations read.
func (on *subject) admissionRequest() *admissionv1.AdmissionRequest {
	if on.read == nil {
		v := on.versioned
		on.read = celplugin.CreateAdmissionRequest(v.Attributes, on.raw.Resource, metav1.GroupVersionKind(v.VersionedKind))
	}
	return on.read
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
	r, ok := c.results(ctx, on, param, namespace)
	if !ok {
		return validating.ValidateResult{}, false
	}
	return r.decide(ctx, on), true
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
