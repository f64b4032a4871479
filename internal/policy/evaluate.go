package policy

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Host is what an evaluation needs of the process around it.
type Host struct {
	Namespaces Namespaces
	Now        func() time.Time
	// Observe is told of each policy's evaluation; nil is allowed.
	Observe func(policy string, operation admissionv1.Operation, decision Decision, elapsed time.Duration)
	// Panicked is told of a panic in a policy's evaluation; nil is allowed.
	Panicked func(policy string, value any, stack []byte)
}

// Evaluate answers a request with every policy of the group that matches it,
// in the order of their names. An error means that the request itself could
// not be read; everything else, panics included, is an error of one policy
// and follows its failurePolicy.
func (g *Group) Evaluate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Host) (*admissionv1.AdmissionResponse, error) {
	r := newRequest(raw)
	matched, reads := g.match(r)
	if len(matched) == 0 {
		return &admissionv1.AdmissionResponse{UID: raw.UID, Allowed: true}, nil
	}
	if err := r.prepare(reads); err != nil {
		return nil, err
	}
	var a answer
	for _, t := range inOrder(ctx, r, matched) {
		decision := DecisionAllow
		if !t.satisfied {
			start := host.Now()
			decision = a.add(t.policy, t.policy.evaluate(ctx, r, host))
			t.elapsed = host.Now().Sub(start)
		}
		if host.Observe != nil {
			host.Observe(t.policy.name, raw.Operation, decision, t.elapsed)
		}
	}
	return a.response(r), nil
}

func (g *Group) match(r *request) ([]*batch, inputs) {
	var matched []*batch
	var reads inputs
	for _, b := range g.index.candidates(r.raw.Resource.Resource) {
		if b.matches(r) {
			matched = append(matched, b)
			reads = reads.with(b.reads)
		}
	}
	return matched, reads
}

// inOrder lists the turns of all policies of batches, by name.
func inOrder(ctx context.Context, r *request, matched []*batch) []turn {
	if len(matched) == 1 {
		return matched[0].turns(ctx, r)
	}
	var all []turn
	for _, b := range matched {
		all = append(all, b.turns(ctx, r)...)
	}
	slices.SortStableFunc(all, func(a, b turn) int { return byName(a.policy, b.policy) })
	return all
}

// evaluate runs one policy's expressions. The decisions are those that the API
// server's own validator makes of them.
func (c *Compiled) evaluate(ctx context.Context, r *request, host Host) (decisions []validating.PolicyDecision) {
	defer func() {
		if value := recover(); value != nil {
			if host.Panicked != nil {
				host.Panicked(c.name, value, debug.Stack())
			}
			decisions = c.failed("internal error: the evaluation panicked")
		}
	}()
	var namespace *corev1.Namespace
	if c.reads.namespace {
		var err error
		if namespace, err = r.namespaceObject(ctx, host.Namespaces); err != nil {
			return c.failed(err.Error())
		}
	}
	result := c.validator.Validate(ctx, schema.GroupVersionResource(r.raw.Resource), r.versioned, nil, namespace, celconfig.RuntimeCELCostBudget, nil)
	return result.Decisions
}

// failed is the decision for a policy that could not be evaluated, which
// follows its failurePolicy.
func (c *Compiled) failed(message string) []validating.PolicyDecision {
	action := validating.ActionDeny
	if c.failurePolicy == admissionregistrationv1.Ignore {
		action = validating.ActionAdmit
	}
	return []validating.PolicyDecision{{Action: action, Evaluation: validating.EvalError, Message: message}}
}

// unknownAction is the text for a decision that is neither admit nor deny, which no
// release of the validator makes.
func unknownAction(action validating.PolicyDecisionAction) string {
	return fmt.Sprintf("internal error: unknown decision %q", action)
}
