package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// mutator is what a policy has of the mutating phase.
type mutator struct {
	matcher  matchconditions.Matcher // nil: no conditions
	patchers []patch.Patcher
	err      error // some expression does not compile
}

// step is one invocation of one policy in the mutating phase.
type step struct {
	policy *Compiled
	invocation
	misconfigured bool // err is about the binding, not of an evaluation
}

// Mutate answers a request with one JSON patch: the mutations of every policy
// of the group that matches it, in the order of their names, each applied to
// what those before made. As in the API server, bindings and params are
// matched on the object as it came, match conditions are evaluated on the
// object as it is then, and an error of a mutation does not stop the others:
// it follows the policy's failurePolicy.
func (g *Group) Mutate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Host) (*admissionv1.AdmissionResponse, error) {
	r, matched, err := g.prepare(ctx, raw, host)
	if err != nil {
		return nil, err
	}
	if len(matched) == 0 || r.versioned.VersionedObject.Object() == nil {
		return allowed(raw), nil
	}
	var steps []step
	for _, p := range matched {
		steps = append(steps, p.steps(ctx, r, host)...)
	}
	var a answer
	changed := false
	for _, s := range steps {
		start := host.Now()
		outcome := s.run(ctx, r, host)
		changed = changed || outcome == DecisionMutate
		if outcome == DecisionError {
			a.refuseMutation(s)
		}
		if host.Observe != nil {
			host.Observe(s.policy.name, raw.Operation, outcome, host.Now().Sub(start))
		}
	}
	if a.denied > 0 || !changed {
		return a.mutation(r), nil
	}
	return patched(r)
}

// steps lists a policy's invocations; a panic while they are looked for is an
// error of each binding.
func (c *Compiled) steps(ctx context.Context, r *request, host Host) (out []step) {
	defer c.recovered(host, func() {
		out = nil
		for i := range c.bindings {
			out = append(out, step{policy: c, invocation: invocation{binding: &c.bindings[i], err: errPanicked}})
		}
	})
	for _, i := range c.invocations(ctx, r, host) {
		if i.err != nil {
			i.err = fmt.Errorf("failed to configure binding: %w", i.err)
		}
		out = append(out, step{policy: c, invocation: i, misconfigured: i.err != nil})
	}
	return out
}

// run applies the mutations of one invocation. Its error, if any, is left in
// the step.
func (s *step) run(ctx context.Context, r *request, host Host) (outcome Decision) {
	before := r.versioned.VersionedObject.Object()
	_ = r.authorizer.failed() // of a step before this one that panicked
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
	if s.err = s.apply(ctx, r, host, namespace); s.err != nil {
		return DecisionError
	}
	if same(before, r.versioned.VersionedObject.Object()) {
		return DecisionAllow
	}
	if s.err = strict(r.versioned.VersionedObject.Object(), host.Objects); s.err != nil {
		r.versioned.UpdateObject(before)
		return DecisionError
	}
	return DecisionMutate
}

// apply runs every mutation on the result of the one before. A mutation that
// fails does not stop those after it, as in the API server; with failurePolicy
// Ignore, what succeeded stays.
func (s *step) apply(ctx context.Context, r *request, host Host, namespace *corev1.Namespace) error {
	var errs []error
	for i, p := range s.policy.mutator.patchers {
		object, err := s.patch(ctx, p, r, host, namespace)
		if unanswered := r.authorizer.failed(); unanswered != nil {
			err = unanswered
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.mutations[%d]: %w", i, err))
			continue
		}
		r.versioned.UpdateObject(object)
	}
	return errors.Join(errs...)
}

func (s *step) patch(ctx context.Context, p patch.Patcher, r *request, host Host, namespace *corev1.Namespace) (runtime.Object, error) {
	if host.TypeConverters == nil || host.Objects == nil {
		return nil, errors.New("schemas are not available here")
	}
	kind := r.versioned.VersionedKind
	converter := host.TypeConverters.GetTypeConverter(kind)
	if converter == nil {
		return nil, fmt.Errorf("the schema of %s is not known: a new kind takes a moment to appear", kind)
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

// same reports whether two objects are one, or equal.
func same(a, b runtime.Object) bool {
	if a == b {
		return true
	}
	ua, okA := a.(*unstructured.Unstructured)
	ub, okB := b.(*unstructured.Unstructured)
	return okA && okB && equality.Semantic.DeepEqual(ua.Object, ub.Object)
}

// strict refuses a result with fields that its Go type does not have, where the
// type is known. The API server drops such fields without a word, and a slip of
// the pen in a mutation would never be noticed.
func strict(object runtime.Object, objects admission.ObjectInterfaces) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("internal error: a mutation made a %T", object)
	}
	typed, err := objects.GetObjectCreater().New(u.GroupVersionKind())
	if err != nil {
		return nil //nolint:nilerr // a kind without a Go type, which the API server checks by its schema
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true); err != nil {
		return fmt.Errorf("the result is no valid %s: %w", u.GetKind(), err)
	}
	return nil
}

// refuseMutation denies for a step's error, unless failurePolicy lets it pass.
// The message is the native one but for the engine's name.
func (a *answer) refuseMutation(s step) {
	reason := metav1.StatusReasonInvalid
	if s.misconfigured {
		reason = metav1.StatusReasonForbidden
	}
	a.refuse(s.policy, s.binding, s.err.Error(), reason)
}

// mutation is the answer without a patch. A denial has the native engine's
// code, which is 403 whatever the reason.
func (a *answer) mutation(r *request) *admissionv1.AdmissionResponse {
	if a.denied == 0 {
		return allowed(r.raw)
	}
	status := a.status(r.versioned)
	status.Code = codeOf(metav1.StatusReasonForbidden)
	return &admissionv1.AdmissionResponse{UID: r.raw.UID, Result: status}
}

// patched is the answer with the difference between the object as it came and
// as it is.
func patched(r *request) (*admissionv1.AdmissionResponse, error) {
	after, err := runtime.Encode(unstructured.UnstructuredJSONScheme, r.versioned.VersionedObject.Object())
	if err != nil {
		return nil, fmt.Errorf("encoding the mutated object: %w", err)
	}
	operations, err := jsonpatch.CreatePatch(r.raw.Object.Raw, after)
	if err != nil {
		return nil, fmt.Errorf("comparing with the mutated object: %w", err)
	}
	out := allowed(r.raw)
	if len(operations) == 0 {
		return out, nil
	}
	if out.Patch, err = json.Marshal(operations); err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	out.PatchType = &kind
	return out, nil
}
