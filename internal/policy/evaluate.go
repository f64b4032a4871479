package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ostiary/ostiary/internal/celengine/uncounted"
)

var (
	errNoMatcher = errors.New("matchResources cannot be matched here")
	errNoParams  = errors.New("params are not available here")

	// noParams makes one evaluation without params.
	noParams = []runtime.Object{nil} //nolint:gochecknoglobals // never changed
)

// Validate evaluates the validations and audit annotations of every matching policy of
// the group, in the order of names. An error means that the request could not be read.
// Everything else, panics included, is an error of one policy, and its failurePolicy
// decides.
func (g *Group) Validate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) (*admissionv1.AdmissionResponse, error) {
	if g.templates != nil {
		return g.validateTemplates(ctx, raw, host)
	}
	r, matched, err := g.prepare(ctx, raw, host, inputs{})
	if err != nil {
		return nil, err
	}
	if len(matched) == 0 {
		return allowed(raw), nil
	}
	return validated(ctx, r, inOrder(ctx, r, matched, host), host), nil
}

// validated returns the response to evaluations, which are in the order of names.
func validated(ctx context.Context, r *request, evaluations []evaluation, host Environment) *admissionv1.AdmissionResponse {
	var a answer
	for _, t := range evaluations {
		decision := DecisionAllow
		switch t.outcome {
		case uncounted.NotMatched:
			decision = DecisionSkip
		case uncounted.Undecided, uncounted.Violated:
			host.pause(ctx)
			start := host.Now()
			decision = a.applyBreakGlass(ctx, t.policy, cmp.Or(t.on, r), host)
			t.elapsed += host.Now().Sub(start)
		}
		if host.Observe != nil {
			host.Observe(t.policy.name, r.raw.Operation, decision, t.elapsed)
		}
	}
	return a.response(r)
}

func allowed(raw *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: raw.UID, Allowed: true}
}

// prepare returns the batches that match a request, and decodes the inputs of their
// policies and of the caller.
func (g *Group) prepare(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment, also inputs) (*request, []*batch, error) {
	r := host.Stored.newRequest(raw)
	matched, reads := g.match(r, host)
	if len(matched) == 0 {
		return r, nil, nil
	}
	r.authorizer = newRequestAuthorizer(ctx, raw, host)
	err := r.prepare(ctx, reads.with(also), host)
	return r, matched, err
}

func (g *Group) match(r *request, host Environment) ([]*batch, inputs) {
	var matched []*batch
	var reads inputs
	for _, b := range g.index.candidates(r.raw.Resource.Resource) {
		if b.matches(r, host) {
			matched = append(matched, b)
			reads = reads.with(b.reads)
		}
	}
	return matched, reads
}

// policiesOf returns the policies of batches, by name.
func policiesOf(matched []*batch) []*Compiled {
	var all []*Compiled
	for _, b := range matched {
		all = append(all, b.policies...)
	}
	slices.SortStableFunc(all, byName)
	return all
}

// inOrder returns the evaluations of all policies of batches, by name.
func inOrder(ctx context.Context, r *request, matched []*batch, host Environment) []evaluation {
	if len(matched) == 1 {
		return matched[0].evaluations(ctx, r, host)
	}
	var all []evaluation
	for _, b := range matched {
		all = append(all, b.evaluations(ctx, r, host)...)
	}
	slices.SortStableFunc(all, func(a, b evaluation) int { return byName(a.policy, b.policy) })
	return all
}

// validate evaluates a policy for each binding and param. The native validator makes the
// decisions.
func (c *Compiled) validate(ctx context.Context, r *request, host Environment) (results []result) {
	_ = r.authorizer.failed() // discards the error of an earlier policy that panicked
	defer c.recovered(host, func() { results = c.failed() })
	if r.unreadable != nil {
		return c.denyUnreadable(r, host)
	}
	invocations := c.invocations(ctx, r, host)
	var made map[runtime.Object]pluginResult // several bindings can have the same param, or none
	if len(invocations) > 1 {
		made = make(map[runtime.Object]pluginResult, len(invocations))
	}
	for _, i := range invocations {
		if i.err != nil {
			results = append(results, result{binding: i.binding, param: i.param, err: i.err})
			continue
		}
		v, ok := made[i.param]
		if !ok {
			host.pause(ctx)
			v = c.evaluate(ctx, r, i.param, host)
			if made != nil {
				made[i.param] = v
			}
		}
		decisions, validations := v.ratchet(i.binding, r, host)
		results = append(results, result{binding: i.binding, param: i.param, decisions: decisions, codes: v.codes, validations: validations, annotations: v.AuditAnnotations, warnings: v.warnings})
	}
	return results
}

// evaluate evaluates a policy with one param. Everything that prevents this counts as an
// error of an expression.
func (c *Compiled) evaluate(ctx context.Context, r *request, param runtime.Object, host Environment) pluginResult {
	if err := expired(ctx); err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if result, ok := r.decided[c]; ok {
		return c.validations.ofBatch(result)
	}
	if c.plugin != nil {
		return c.evaluatePlugin(ctx, r, host)
	}
	namespace, err := c.namespace(ctx, r, host)
	if err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	following, run := c.validations.follow(ctx)
	result := pluginResult{ValidateResult: c.validator.Validate(following, schema.GroupVersionResource(r.raw.Resource), r.versioned, param, namespace, celconfig.RuntimeCELCostBudget, r.authorizer)}
	if err := r.authorizer.failed(); err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if run.ratchets() && !c.appliesToStored(ctx, r, param, host) {
		clear(run.ratcheted)
	}
	c.validations.apply(run, &result)
	return result
}

// expired returns an error after the deadline of the request. CEL checks the deadline
// only in long loops.
func expired(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not evaluated: %w", err)
	}
	return nil
}

// namespace returns the namespaceObject, if the policy reads it.
func (c *Compiled) namespace(ctx context.Context, r *request, host Environment) (*corev1.Namespace, error) {
	if !c.reads.namespace {
		return nil, nil
	}
	return r.namespaceObject(ctx, host.Namespaces)
}

// failed returns the result of a policy whose evaluation panicked: for each binding the
// decision of failurePolicy.
func (c *Compiled) failed() []result {
	results := make([]result, len(c.bindings))
	for i := range c.bindings {
		results[i] = result{binding: &c.bindings[i], decisions: c.failure(errPanicked).Decisions, warnings: c.ignoredPanic()}
	}
	return results
}

// failure returns the decision of failurePolicy about an evaluation without a result.
func (c *Compiled) failure(err error) validating.ValidateResult {
	action := validating.ActionDeny
	if c.failurePolicy == admissionregistrationv1.Ignore {
		action = validating.ActionAdmit
	}
	return validating.ValidateResult{Decisions: []validating.PolicyDecision{{Action: action, Evaluation: validating.EvalError, Message: err.Error()}}}
}
