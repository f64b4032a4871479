package policy

import (
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

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
)

var (
	errNoParams = errors.New("params are not available here")

	// noParams makes one evaluation without params.
	noParams = []runtime.Object{nil} //nolint:gochecknoglobals // never changed
)

// Validate evaluates the validations and audit annotations of every matching policy of
// the group, in the order of names. An error means that the request could not be read.
// Everything else, panics included, is an error of one policy, and its failurePolicy
// decides.
func (g *Group) Validate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) (*admissionv1.AdmissionResponse, error) {
	r, all, err := g.prepare(ctx, raw, host, inputs{})
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return allowed(raw), nil
	}
	var a answer
	alone := 0
	evaluations := evaluationsOf(ctx, all, host)
	for i := range evaluations {
		a.validate(ctx, evaluations[i], host)
		if evaluations[i].isAlone() {
			alone++
		}
	}
	if host.Evaluated != nil {
		host.Evaluated(len(evaluations)-alone, alone)
	}
	a.countExcepted(host)
	for _, m := range all {
		m.on.releaseValues()
	}
	return a.validated(r), nil
}

// isAlone reports whether the policy is evaluated outside of the batch.
func (e *evaluation) isAlone() bool {
	switch e.outcome {
	case uncounted.Satisfied, uncounted.NotMatched:
		return false
	}
	if later := e.on.later[e.policy]; later != nil {
		return later.alone
	}
	_, decided := e.on.decided[e.policy]
	return !decided
}

// validate completes the evaluation of one policy and adds its results.
func (a *answer) validate(ctx context.Context, e evaluation, host Environment) {
	if e.policy.isSuspended(host) {
		a.passSuspended(e.policy, e.on.raw.Operation, host)
		return
	}
	decision, elapsed := DecisionAllow, e.elapsed
	switch e.outcome {
	case uncounted.NotMatched:
		decision = DecisionSkip
	case uncounted.Undecided, uncounted.Violated:
		host.pause(ctx)
		start := host.Now()
		decision = a.applyBreakGlass(ctx, e.policy, e.on, host)
		elapsed += host.Now().Sub(start)
	}
	if host.Observe != nil {
		host.Observe(e.policy.name, e.on.raw.Operation, decision, elapsed)
	}
}

func allowed(raw *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: raw.UID, Allowed: true}
}

// prepare returns the targets that match a request, with their subjects. It decodes the inputs
// of their policies and of the caller.
func (g *Group) prepare(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment, also inputs) (*request, []matchedTarget, error) {
	r := host.Stored.newRequest(raw)
	all, reads := g.match(r, host)
	if len(all) == 0 {
		return r, nil, nil
	}
	r.authorizer = accessreview.NewRequestAuthorizer(ctx, host.Authorizer, raw.Resource.Group)
	if err := r.prepare(ctx, reads.with(also), host); err != nil {
		return r, nil, err
	}
	subjects := r.subjects(all, host)
	return r, subjects, nil
}

// match returns the targets that match a request, without subjects, and what is read for them.
func (g *Group) match(r *request, host Environment) ([]matchedTarget, inputs) {
	var matched []matchedTarget
	all := g.index.candidates(r.raw.Resource.Resource)
	for i := range all.targets {
		if t := &all.targets[i]; t.matches(r, host) {
			matched = append(matched, matchedTarget{target: t})
		}
	}
	return matched, all.readsOf(matched, r.raw.Operation)
}

// evaluationsOf returns the evaluations of all policies of targets, by name.
func evaluationsOf(ctx context.Context, matched []matchedTarget, host Environment) []evaluation {
	count := 0
	for _, m := range matched {
		count += len(m.policies)
	}
	all := make([]evaluation, 0, count)
	for i, m := range matched {
		if i > 0 {
			host.pause(ctx)
		}
		all = m.appendEvaluations(ctx, all, m.on, host)
	}
	if len(matched) == 1 { // sorted by name
		return all
	}
	slices.SortStableFunc(all, func(a, b evaluation) int { return byName(a.policy, b.policy) })
	return all
}

// validate evaluates a policy for each binding and param. The native validator makes the
// decisions.
func (c *Compiled) validate(ctx context.Context, on *subject, host Environment) (results []result) {
	_ = on.authorizer.TakeError() // discards the error of an earlier policy that panicked
	defer c.recovered(host, func() { results = c.failed() })
	if on.unreadable != nil {
		return c.denyUnreadable(on, host)
	}
	invocations := c.invocations(ctx, on, host)
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
			v = c.evaluate(ctx, on, i.param, host)
			c.except(ctx, on, &v, host)
			if made != nil {
				made[i.param] = v
			}
		}
		decisions, validations := v.ratchet(i.binding, on, host)
		results = append(results, result{
			binding:     i.binding,
			param:       i.param,
			decisions:   decisions,
			codes:       v.codes,
			validations: validations,
			annotations: v.AuditAnnotations,
			warnings:    v.warnings,
		})
	}
	return results
}

// evaluate evaluates a policy with one param. Everything that prevents this counts as an
// error of an expression.
func (c *Compiled) evaluate(ctx context.Context, on *subject, param runtime.Object, host Environment) pluginResult {
	if err := expired(ctx); err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if result, ok := on.decided[c]; ok {
		return c.validations.ofBatch(result)
	}
	if c.plugin != nil {
		return c.evaluatePlugin(ctx, on, host)
	}
	namespace, err := c.namespace(ctx, on, host)
	if err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if result, ok := c.evaluateLater(ctx, on, param, namespace); ok {
		if err := on.authorizer.TakeError(); err != nil {
			return pluginResult{ValidateResult: c.failure(err)}
		}
		return c.validations.ofBatch(result)
	}
	ctx = c.withLookups(ctx, on, host)
	following, run := c.validations.follow(ctx, on)
	resource, budget := schema.GroupVersionResource(on.raw.Resource), int64(celconfig.RuntimeCELCostBudget)
	result := pluginResult{
		ValidateResult: c.validator.Validate(following, resource, on.versioned, param, namespace, budget, on.authorizer),
	}
	if err := on.authorizer.TakeError(); err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if run.ratchets() && !c.appliesToStored(ctx, on, param, host) {
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
func (c *Compiled) namespace(ctx context.Context, on *subject, host Environment) (*corev1.Namespace, error) {
	if !c.reads.namespace {
		return nil, nil
	}
	return on.namespaceObject(ctx, host.Namespaces)
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
