package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/objectpatch"
	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/internal/truncate"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
	"github.com/ostiary/ostiary/internal/violationtext"
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
	on     *subject
	invocation
	misconfigured bool            // err is an error of the binding, not of an evaluation
	result        runtime.Object  // the resulting object, if it is to be checked
	again         []int           // the mutations that changed their own result
	refusals      []metav1.Status // of a plugin
	previewed     []objectpatch.Operation
	excepted      *exceptions.Entry
}

// Mutate evaluates the mutations of every matching policy of the group and returns one
// JSON patch. Policies run in the order of names, each on the result of the previous one.
// As in the API server, bindings and params are matched on the object of the request,
// match conditions on the current object, and a failed mutation does not stop the others:
// failurePolicy decides.
func (g *Group) Mutate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) (*admissionv1.AdmissionResponse, error) {
	r, all, err := g.prepare(ctx, raw, host, g.readsToMutate(raw, host))
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return allowed(raw), nil
	}
	var a answer
	steps := a.steps(ctx, all, host)
	// As in the API server, misconfigured bindings come first.
	for _, misconfigured := range []bool{true, false} {
		for i := range steps {
			if s := &steps[i]; s.misconfigured == misconfigured {
				a.mutate(ctx, s, host)
			}
		}
	}
	defer recheck(steps, host)
	a.annotateSkipped()
	a.annotateExcepted()
	a.annotateSuspended()
	a.annotatePreviews()
	a.countExcepted(host)
	whole := r.whole.versioned
	return a.Mutated(r.raw.UID, whole, whole.Attributes.GetObject(), changedObject(r, all))
}

// readsToMutate returns what mutations read: the patch needs the whole object. If its kind has
// a Go type, as Pods of templates have, results have to fit it.
func (g *Group) readsToMutate(raw *admissionv1.AdmissionRequest, host Environment) inputs {
	kind := schema.GroupVersionKind(raw.Kind)
	values := g.templates || host.Objects != nil && host.Objects.GetObjectTyper().Recognizes(kind)
	return inputs{object: unstructuredjson.Everything(), copies: true, values: values}
}

// steps returns the steps of all policies, by name. It denies requests with subjects that
// cannot be read, and makes no step for a subject without an object, such as a deletion.
func (a *answer) steps(ctx context.Context, matched []matchedTarget, host Environment) []step {
	var all []evaluation
	for _, m := range matched {
		for _, p := range m.policies {
			all = append(all, evaluation{policy: p, on: m.on})
		}
	}
	slices.SortStableFunc(all, func(a, b evaluation) int { return byName(a.policy, b.policy) })
	var out []step
	for _, e := range all {
		switch {
		case e.policy.isSuspended(host):
			a.passSuspended(e.policy, e.on.raw.Operation, host)
		case e.on.unreadable != nil:
			start := host.Now()
			decision := a.applyBreakGlass(ctx, e.policy.denyingBindings(), e.on, host)
			if host.Observe != nil {
				host.Observe(e.policy.name, e.on.raw.Operation, decision, host.Now().Sub(start))
			}
		case e.on.versioned.VersionedObject.Object() != nil:
			own := e.policy.steps(ctx, e.on, host)
			if len(own) == 0 && host.Observe != nil {
				host.Observe(e.policy.name, e.on.raw.Operation, DecisionUnmatched, 0)
			}
			out = append(out, own...)
		}
	}
	return out
}

// mutate runs one step and adds its result.
func (a *answer) mutate(ctx context.Context, s *step, host Environment) {
	on := s.on
	host.pause(ctx)
	start := host.Now()
	before := on.versioned.VersionedObject.Object()
	outcome := a.run(ctx, s, host)
	s.traceStep(ctx, outcome)
	if a.skip(s, outcome, before, host) {
		outcome = DecisionBreakGlass
	}
	switch outcome {
	case DecisionError:
		a.refuseMutation(s)
		if errors.Is(s.err, errPanicked) {
			a.WarnOnce(s.policy.ignoredPanic()...)
		}
	case DecisionDeny:
		a.refuseObject(s)
	case DecisionExcepted:
		a.exceptBy(s.policy.name, s.policy.mutationLabel(), on.template, s.excepted)
	}
	if len(s.previewed) > 0 {
		a.preview(s)
	}
	if host.reports(outcome) {
		s.report(outcome, host)
	}
	if host.Observe != nil {
		host.Observe(s.policy.name, on.raw.Operation, outcome, host.Now().Sub(start))
	}
	if outcome == DecisionMutate && !on.large && host.Recheck.due(s.policy) {
		s.result = on.versioned.VersionedObject.Object()
	}
}

// run runs a step, or previews it.
func (a *answer) run(ctx context.Context, s *step, host Environment) Decision {
	if s.previews() {
		return a.runPreview(ctx, s, host)
	}
	return s.run(ctx, host)
}

// steps returns the invocations of a policy; a panic meanwhile is an error of each
// binding.
func (c *Compiled) steps(ctx context.Context, on *subject, host Environment) (out []step) {
	defer c.recovered(host, func() {
		out = nil
		for i := range c.bindings {
			out = append(out, step{policy: c, on: on, invocation: invocation{binding: &c.bindings[i], err: errPanicked}})
		}
	})
	for _, i := range c.invocations(ctx, on, host) {
		if i.err != nil {
			i.err = i.binding.misconfigured(i.err)
		}
		out = append(out, step{policy: c, on: on, invocation: i, misconfigured: i.err != nil})
	}
	return out
}

// run applies the mutations of one invocation. It stores an error in the step.
func (s *step) run(ctx context.Context, host Environment) (outcome Decision) {
	before := s.on.versioned.VersionedObject.Object()
	_ = s.on.authorizer.TakeError() // discards the error of an earlier step that panicked
	defer s.policy.recovered(host, func() {
		s.on.versioned.UpdateObject(before)
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
	namespace, err := s.policy.namespace(ctx, s.on, host)
	if err != nil {
		s.err = err
		return DecisionError
	}
	if m := s.policy.mutator.matcher; m != nil {
		result := m.Match(ctx, s.on.versioned, s.param, s.on.authorizer)
		if s.err = errors.Join(result.Error, s.on.authorizer.TakeError()); s.err != nil {
			return DecisionError
		}
		if !result.Matches {
			return DecisionSkip
		}
	}
	if s.exceptMutation(ctx, host) {
		return DecisionExcepted
	}
	if s.policy.plugin != nil {
		outcome, s.err = s.admit(ctx, host)
		return outcome
	}
	if s.err = s.apply(ctx, host, namespace); s.err != nil {
		return DecisionError
	}
	after := s.on.versioned.VersionedObject.Object()
	if after == before || len(s.policy.mutator.patchers) > 1 && objectpatch.Equal(before, after) {
		return DecisionAllow
	}
	return DecisionMutate
}

// apply runs each mutation on the result of the previous one. A failed mutation does not
// stop later ones, as in the API server; with failurePolicy Ignore, the results of the
// others stay.
func (s *step) apply(ctx context.Context, host Environment, namespace *corev1.Namespace) error {
	var errs []error
	for i, p := range s.policy.mutator.patchers {
		object, err := s.patch(ctx, p, host, namespace)
		if unanswered := s.on.authorizer.TakeError(); unanswered != nil {
			err = unanswered
		}
		before := s.on.versioned.VersionedObject.Object()
		if err == nil {
			object, err = objectpatch.CheckResult(before, object, host.Objects)
		}
		if err == nil {
			err = errors.Join(objectpatch.CheckIdentity(admission.Operation(s.on.raw.Operation), before, object), s.on.checkTemplate(before, object))
		}
		if err != nil {
			errs = append(errs, s.on.atTemplate(&violationtext.MutationError{Index: i, Err: err}))
			continue
		}
		if object == before {
			continue
		}
		s.on.versioned.UpdateObject(object)
		if s.result != nil {
			s.again = append(s.again, i)
		}
	}
	return errors.Join(errs...)
}

// patch runs one mutation. A panic is an error of this mutation: the library for JSON
// patches panics if a test compares lists with null.
func (s *step) patch(ctx context.Context, p patch.Patcher, host Environment, namespace *corev1.Namespace) (object runtime.Object, err error) {
	defer s.policy.recovered(host, func() { err = errPanicked })
	if host.TypeConverters == nil || host.Objects == nil {
		return nil, errors.New("schemas are not available here")
	}
	converter := s.on.converter(host.TypeConverters)
	if converter == nil {
		return nil, fmt.Errorf("the schema of %s is not known: a new kind takes a moment to appear", s.on.kindOfObject())
	}
	object, err = p.Patch(ctx, patch.Request{
		MatchedResource:     schema.GroupVersionResource(s.on.raw.Resource),
		VersionedAttributes: s.on.versioned,
		ObjectInterfaces:    host.Objects,
		OptionalVariables:   celplugin.OptionalVariableBindings{VersionedParams: s.param, Authorizer: s.on.authorizer},
		Namespace:           namespace,
		TypeConverter:       converter,
	}, celconfig.RuntimeCELCostBudget)
	if apierrors.IsInternalError(err) { // of the decoder, which quotes the whole result
		err = errors.New("the result has no kind: the operations of jsonPatch.expression must keep apiVersion and kind")
	}
	return object, err
}

// refuseMutation denies the request because of a step's error, unless failurePolicy is
// Ignore, or the step is a preview: that never denies. The message is the native one with
// another subject.
func (a *answer) refuseMutation(s *step) {
	if s.previews() {
		return
	}
	reason := metav1.StatusReasonInvalid
	if s.misconfigured {
		reason = metav1.StatusReasonForbidden
	}
	a.denyMisconfigured(s.policy, s.binding, s.err.Error(), reason)
}

// refuseObject denies the request with the refusals of a plugin.
func (a *answer) refuseObject(s *step) {
	for _, r := range s.refusals {
		message := truncate.String(r.Message, response.MaxOneMessage)
		a.Deny(response.Denial{Message: s.binding.subject + " denied request: " + message, Reason: r.Reason, Code: r.Code})
	}
}

// Recheck configures how policies that change objects are run again on their own result.
// If a policy then changes it again, it is not idempotent: the next update applies its
// mutations a second time.
type Recheck struct {
	// First is the number of first changes of a policy that are checked. After these, one
	// in Every is.
	First, Every uint64
	// Later runs a check with a deadline of its own, or omits it. No request waits for a
	// check.
	Later func(check func(ctx context.Context))
	// Found gets each policy that changed its own result again.
	Found func(Repeat)
}

// Repeat is a policy that changed its own result again.
type Repeat struct {
	Policy     string
	UID        types.UID
	Generation int64
	// Mutations holds the indices of the mutations that did.
	Mutations []int
}

// due reports whether to check the latest change of a policy.
func (r *Recheck) due(c *Compiled) bool {
	if r == nil {
		return false
	}
	n := c.changes.Add(1)
	return n <= r.First || n%r.Every == 0
}

// recheck checks the steps with a result, those of each subject together. The request must
// have been answered: the check changes its subjects.
func recheck(steps []step, host Environment) {
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.result == nil })
	host.Panicked = nil
	for len(steps) > 0 {
		on := steps[0].on
		var own, others []step
		for _, s := range steps {
			if s.on == on {
				own = append(own, s)
			} else {
				others = append(others, s)
			}
		}
		host.Recheck.Later(func(ctx context.Context) { on.recheck(ctx, own, host) })
		steps = others
	}
}

// recheck runs steps on their own results. Checks of other subjects of the request can run at
// the same time, so the subject gets a request of its own, with an authorizer for ctx.
func (on *subject) recheck(ctx context.Context, steps []step, host Environment) {
	own := *on.request
	own.authorizer = accessreview.NewRequestAuthorizer(ctx, host.Authorizer, own.raw.Resource.Group)
	on.request = &own
	for i := range steps {
		s := &steps[i]
		on.versioned.UpdateObject(s.result)
		if s.run(ctx, host) == DecisionMutate {
			c := s.policy
			host.Recheck.Found(Repeat{Policy: c.name, UID: c.uid, Generation: c.generation, Mutations: s.again})
		}
	}
}
