package policy

import (
	"context"
	"errors"
	"runtime/debug"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

var (
	errNoMatcher = errors.New("matchResources cannot be matched here")
	errNoParams  = errors.New("params are not available here")
	errPanicked  = errors.New("internal error: the evaluation panicked")

	// noParams is one evaluation without params.
	noParams = []runtime.Object{nil}
)

// Validate answers a request with the validations and audit annotations of
// every policy of the group that matches it, in the order of their names. An
// error means that the request itself could not be read; everything else,
// panics included, is an error of one policy and follows its failurePolicy.
func (g *Group) Validate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Host) (*admissionv1.AdmissionResponse, error) {
	r, matched, err := g.prepare(ctx, raw, host)
	if err != nil {
		return nil, err
	}
	if len(matched) == 0 {
		return allowed(raw), nil
	}
	var a answer
	for _, p := range matched {
		start := host.Now()
		decision := a.add(p, p.validate(ctx, r, host))
		if host.Observe != nil {
			host.Observe(p.name, raw.Operation, decision, host.Now().Sub(start))
		}
	}
	return a.response(r), nil
}

func allowed(raw *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: raw.UID, Allowed: true}
}

// prepare finds the policies that match a request and decodes what they read.
func (g *Group) prepare(ctx context.Context, raw *admissionv1.AdmissionRequest, host Host) (*request, []*Compiled, error) {
	r := newRequest(raw)
	matched, reads := g.match(r, host)
	if len(matched) == 0 {
		return r, nil, nil
	}
	r.authorizer = newQuestions(ctx, host)
	return r, matched, r.prepare(reads)
}

func (g *Group) match(r *request, host Host) ([]*Compiled, inputs) {
	var matched []*Compiled
	var reads inputs
	for _, p := range g.index.candidates(r.raw.Resource.Resource) {
		if p.matches(r, host) {
			matched = append(matched, p)
			reads = reads.with(p.reads)
		}
	}
	return matched, reads
}

// validate runs one policy's expressions, for each binding and param. The
// decisions are those that the API server's own validator makes of them.
func (c *Compiled) validate(ctx context.Context, r *request, host Host) (results []result) {
	_ = r.authorizer.failed() // of a policy before this one that panicked
	defer c.recovered(host, func() { results = c.failed(errPanicked.Error()) })
	namespace, err := c.namespace(ctx, r, host)
	if err != nil {
		return c.failed(err.Error())
	}
	var plain *validating.ValidateResult // without params every binding has the same
	for _, i := range c.invocations(ctx, r, host) {
		if i.err != nil {
			results = append(results, result{binding: i.binding, err: i.err})
			continue
		}
		if i.param == nil && plain != nil {
			results = append(results, result{binding: i.binding, decisions: plain.Decisions, annotations: plain.AuditAnnotations})
			continue
		}
		v := c.validator.Validate(ctx, schema.GroupVersionResource(r.raw.Resource), r.versioned, i.param, namespace, celconfig.RuntimeCELCostBudget, r.authorizer)
		if err := r.authorizer.failed(); err != nil {
			v = validating.ValidateResult{Decisions: c.failure(err.Error())}
		}
		if i.param == nil {
			plain = &v
		}
		results = append(results, result{binding: i.binding, decisions: v.Decisions, annotations: v.AuditAnnotations})
	}
	return results
}

// recovered makes a panic an error of this policy alone.
func (c *Compiled) recovered(host Host, fail func()) {
	value := recover() //nolint:revive // it is deferred itself
	if value == nil {
		return
	}
	if host.Panicked != nil {
		host.Panicked(c.name, value, debug.Stack())
	}
	fail()
}

// namespace is the namespaceObject, where the policy reads it.
func (c *Compiled) namespace(ctx context.Context, r *request, host Host) (*corev1.Namespace, error) {
	if !c.reads.namespace {
		return nil, nil
	}
	return r.namespaceObject(ctx, host.Namespaces)
}

// failed is the result of a policy that could not be evaluated: for each
// binding a decision that follows failurePolicy, and then the binding's actions.
func (c *Compiled) failed(message string) []result {
	decisions := c.failure(message)
	results := make([]result, len(c.bindings))
	for i := range c.bindings {
		results[i] = result{binding: &c.bindings[i], decisions: decisions}
	}
	return results
}

// failure is the decision on an evaluation that came to no result.
func (c *Compiled) failure(message string) []validating.PolicyDecision {
	action := validating.ActionDeny
	if c.failurePolicy == admissionregistrationv1.Ignore {
		action = validating.ActionAdmit
	}
	return []validating.PolicyDecision{{Action: action, Evaluation: validating.EvalError, Message: message}}
}
