package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ostiary/ostiary/internal/objectpatch"
	"github.com/ostiary/ostiary/internal/truncate"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// mutator is the part of a policy for the mutating phase.
type mutator struct {
	matcher  matchconditions.Matcher // nil without conditions
	patchers []patch.Patcher
	err      error // an expression does not compile
}

// step is one invocation of one policy in the mutating phase.
type step struct {
	policy *Compiled
	invocation
	misconfigured bool            // err is an error of the binding, not of an evaluation
	result        runtime.Object  // the resulting object, if it is to be checked
	again         []int           // the mutations that changed their own result
	refusals      []metav1.Status // of a plugin
}

// Mutate evaluates the mutations of every matching policy of the group and returns one
// JSON patch. Policies run in the order of names, each on the result of the previous one.
// As in the API server, bindings and params are matched on the object of the request,
// match conditions on the current object, and a failed mutation does not stop the others:
// failurePolicy decides.
func (g *Group) Mutate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) (*admissionv1.AdmissionResponse, error) {
	if g.templates != nil {
		return g.mutateTemplates(ctx, raw, host)
	}
	// The patch needs the whole object. If its kind has a Go type, results have to fit
	// it.
	values := host.Objects != nil && host.Objects.GetObjectTyper().Recognizes(schema.GroupVersionKind(raw.Kind))
	r, matched, err := g.prepare(ctx, raw, host, inputs{object: unstructuredjson.Everything(), copies: true, values: values})
	if err != nil {
		return nil, err
	}
	switch {
	case len(matched) > 0 && r.unreadable != nil:
		return g.mutateUnreadable(ctx, r, matched, host), nil
	case len(matched) == 0 || r.versioned.VersionedObject.Object() == nil:
		return allowed(raw), nil
	}
	before := r.versioned.VersionedObject.Object()
	var steps []step
	for _, p := range policiesOf(matched) {
		own := p.steps(ctx, r, host)
		if len(own) == 0 && host.Observe != nil {
			host.Observe(p.name, raw.Operation, DecisionUnmatched, 0)
		}
		steps = append(steps, own...)
	}
	var a answer
	a.mutateAll(ctx, steps, r, host)
	defer recheck(r, steps, host)
	out := a.mutation(r)
	if after := r.versioned.VersionedObject.Object(); a.denied == 0 && after != before {
		err = addPatch(out, before, after)
	}
	a.addDetails(out)
	return out, err
}

// mutateAll runs steps in the order of the API server: misconfigured bindings come first.
func (a *answer) mutateAll(ctx context.Context, steps []step, r *request, host Environment) {
	for _, misconfigured := range []bool{true, false} {
		for i := range steps {
			if s := &steps[i]; s.misconfigured == misconfigured {
				a.mutate(ctx, s, r, host)
			}
		}
	}
}

// mutate runs one step and adds its result.
func (a *answer) mutate(ctx context.Context, s *step, r *request, host Environment) {
	host.pause(ctx)
	start := host.Now()
	before := r.versioned.VersionedObject.Object()
	outcome := s.run(ctx, r, host)
	s.traceStep(ctx, r, outcome)
	if a.skip(s, outcome, before, r, host) {
		outcome = DecisionBreakGlass
	}
	switch outcome {
	case DecisionError:
		a.refuseMutation(s)
		if errors.Is(s.err, errPanicked) {
			a.warnOnce(s.policy.ignoredPanic()...)
		}
	case DecisionDeny:
		a.refuseObject(s)
	}
	if host.reports(outcome) {
		s.report(r, outcome, host)
	}
	if host.Observe != nil {
		host.Observe(s.policy.name, r.raw.Operation, outcome, host.Now().Sub(start))
	}
	if outcome == DecisionMutate && !r.large && host.Recheck.due(s.policy) {
		s.result = r.versioned.VersionedObject.Object()
	}
}

// steps returns the invocations of a policy; a panic meanwhile is an error of each
// binding.
func (c *Compiled) steps(ctx context.Context, r *request, host Environment) (out []step) {
	defer c.recovered(host, func() {
		out = nil
		for i := range c.bindings {
			out = append(out, step{policy: c, invocation: invocation{binding: &c.bindings[i], err: errPanicked}})
		}
	})
	for _, i := range c.invocations(ctx, r, host) {
		if i.err != nil {
			i.err = i.binding.misconfigured(i.err)
		}
		out = append(out, step{policy: c, invocation: i, misconfigured: i.err != nil})
	}
	return out
}

// run applies the mutations of one invocation. It stores an error in the step.
func (s *step) run(ctx context.Context, r *request, host Environment) (outcome Decision) {
	before := r.versioned.VersionedObject.Object()
	_ = r.authorizer.failed() // discards the error of an earlier step that panicked
	defer s.policy.recovered(host, func() {
		r.versioned.UpdateObject(before)
		s.err, outcome = errPanicked, DecisionError
	})
	if s.err == nil {
		s.err = s.policy.mutator.err
	}
	if s.err != nil {
		return DecisionError
	}
	if s.err = expired(ctx); s.err != nil {
		return DecisionError
	}
	namespace, err := s.policy.namespace(ctx, r, host)
	if err != nil {
		s.err = err
		return DecisionError
	}
	if m := s.policy.mutator.matcher; m != nil {
		result := m.Match(ctx, r.versioned, s.param, r.authorizer)
		if s.err = errors.Join(result.Error, r.authorizer.failed()); s.err != nil {
			return DecisionError
		}
		if !result.Matches {
			return DecisionSkip
		}
	}
	if s.policy.plugin != nil {
		outcome, s.err = s.admit(ctx, r, host)
		return outcome
	}
	if s.err = s.apply(ctx, r, host, namespace); s.err != nil {
		return DecisionError
	}
	after := r.versioned.VersionedObject.Object()
	if after == before || len(s.policy.mutator.patchers) > 1 && objectpatch.Equal(before, after) {
		return DecisionAllow
	}
	return DecisionMutate
}

// apply runs each mutation on the result of the previous one. A failed mutation does not
// stop later ones, as in the API server; with failurePolicy Ignore, the results of the
// others stay.
func (s *step) apply(ctx context.Context, r *request, host Environment, namespace *corev1.Namespace) error {
	var errs []error
	for i, p := range s.policy.mutator.patchers {
		object, err := s.patch(ctx, p, r, host, namespace)
		if unanswered := r.authorizer.failed(); unanswered != nil {
			err = unanswered
		}
		before := r.versioned.VersionedObject.Object()
		if err == nil {
			object, err = objectpatch.CheckResult(before, object, host.Objects)
		}
		if err == nil {
			err = errors.Join(checkIdentity(r.raw.Operation, before, object), r.checkTemplate(before, object))
		}
		if err != nil {
			errs = append(errs, r.atTemplate(&mutationError{i, err}))
			continue
		}
		if object == before {
			continue
		}
		r.versioned.UpdateObject(object)
		if s.result != nil {
			s.again = append(s.again, i)
		}
	}
	return errors.Join(errs...)
}

// mutationError is the error of one mutation.
type mutationError struct {
	index int
	err   error
}

// Error implements error.
func (e *mutationError) Error() string { return fmt.Sprintf("spec.mutations[%d]: %s", e.index, e.err) }

// Unwrap implements errors.Unwrap.
func (e *mutationError) Unwrap() error { return e.err }

// checkIdentity rejects a mutation that the API server would reject without the name
// of the policy. On CREATE, the API server accepts another name.
func checkIdentity(operation admissionv1.Operation, before, after runtime.Object) error {
	was, okBefore := before.(metav1.Object)
	is, okAfter := after.(metav1.Object)
	switch {
	case !okBefore || !okAfter:
		return nil
	case was.GetNamespace() != is.GetNamespace():
		return fmt.Errorf("metadata.namespace: the mutation changes it from %q to %q; the namespace of an object is immutable", was.GetNamespace(), is.GetNamespace())
	case operation != admissionv1.Create && was.GetName() != is.GetName():
		return fmt.Errorf("metadata.name: the mutation changes it from %q to %q; the name of an existing object is immutable", was.GetName(), is.GetName())
	}
	return nil
}

// patch runs one mutation. A panic is an error of this mutation: the library for JSON
// patches panics if a test compares lists with null.
func (s *step) patch(ctx context.Context, p patch.Patcher, r *request, host Environment, namespace *corev1.Namespace) (object runtime.Object, err error) {
	defer s.policy.recovered(host, func() { err = errPanicked })
	if host.TypeConverters == nil || host.Objects == nil {
		return nil, errors.New("schemas are not available here")
	}
	converter := r.converter(host.TypeConverters)
	if converter == nil {
		return nil, fmt.Errorf("the schema of %s is not known: a new kind takes a moment to appear", r.kindOfObject())
	}
	return p.Patch(ctx, patch.Request{
		MatchedResource:     schema.GroupVersionResource(r.raw.Resource),
		VersionedAttributes: r.versioned,
		ObjectInterfaces:    host.Objects,
		OptionalVariables:   celplugin.OptionalVariableBindings{VersionedParams: s.param, Authorizer: r.authorizer},
		Namespace:           namespace,
		TypeConverter:       converter,
	}, celconfig.RuntimeCELCostBudget)
}

// refuseMutation denies the request because of a step's error, unless failurePolicy is
// Ignore. The message is the native one with another subject.
func (a *answer) refuseMutation(s *step) {
	reason := metav1.StatusReasonInvalid
	if s.misconfigured {
		reason = metav1.StatusReasonForbidden
	}
	a.denyMisconfigured(s.policy, s.binding, s.err.Error(), reason)
}

// refuseObject denies the request with the refusals of a plugin.
func (a *answer) refuseObject(s *step) {
	for _, r := range s.refusals {
		a.deny(denial{message: s.binding.subject + " denied request: " + truncate.String(r.Message, maxOneMessage), reason: r.Reason, code: r.Code})
	}
}

// mutation returns the response without a patch. A denial has the code 403 for every
// reason, as in the native engine.
func (a *answer) mutation(r *request) *admissionv1.AdmissionResponse {
	if a.denied == 0 {
		return allowed(r.raw)
	}
	status := a.status(r.versioned)
	status.Code = cmp.Or(a.denials[0].code, codeOf(metav1.StatusReasonForbidden))
	return &admissionv1.AdmissionResponse{UID: r.raw.UID, Result: status}
}

// addPatch adds the difference of two objects to a response.
func addPatch(out *admissionv1.AdmissionResponse, before, after runtime.Object) error {
	old, okOld := before.(*unstructured.Unstructured)
	changed, okChanged := after.(*unstructured.Unstructured)
	if !okOld || !okChanged {
		return fmt.Errorf("internal error: mutations made a %T of a %T", after, before)
	}
	operations := objectpatch.Diff(old.Object, changed.Object)
	if len(operations) == 0 {
		return nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	out.Patch, out.PatchType = patch, &kind
	return nil
}
