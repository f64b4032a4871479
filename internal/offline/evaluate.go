package offline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	webhookconditions "k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/nativeengine"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
)

// Result is the result of a request.
type Result struct {
	Allowed bool
	// Status is that of the first denial.
	Status *metav1.Status
	// Denials are the statuses of all webhooks that deny the request.
	Denials          []metav1.Status
	Warnings         []string
	AuditAnnotations map[string]string
	// Object is the object after mutations; nil for a DELETE.
	Object []byte
	// Changed reports whether mutations changed the object.
	Changed  bool
	Outcomes []Outcome
	// Conditions are the results of the match conditions of backends, which the API server
	// evaluates.
	Conditions []Condition
}

// Condition is the result of a match condition.
type Condition struct {
	Policy string
	// Field is its path, as "spec.matchConditions[0].expression".
	Field   string
	Matches bool
}

// Outcome is the decision of one policy in one phase.
type Outcome struct {
	Policy   string
	Phase    registration.Phase
	Decision policy.Decision
	// Response is that of the policy alone, if its decision is one that has messages.
	Response *admissionv1.AdmissionResponse
	// Err is the reason why the policy could not be evaluated here.
	Err error
}

// DecisionBackend is the decision of a policy with a backend, which this program does not
// call.
const DecisionBackend policy.Decision = "backend"

// DecisionNotEvaluated is the decision of a policy that is left out, because it asks the authorizer of a cluster.
const DecisionNotEvaluated policy.Decision = "not evaluated"

// evaluation is the evaluation of one request.
type evaluation struct {
	engine  *Engine
	host    policy.Environment
	request admissionv1.AdmissionRequest
	result  Result
	backend func(policy string) *admissionv1.AdmissionResponse
	// matched are the attributes of the current object; nil after a change.
	matched admission.Attributes
}

// Options are options of an evaluation.
type Options struct {
	// Backend answers for the backend of a policy; nil is no answer.
	Backend func(policy string) *admissionv1.AdmissionResponse
	// Details adds the response of each policy to its outcome.
	Details bool
	// LeaveOut leaves out the policies that fail because a check of the authorizer has no answer: what they decide
	// in a cluster is not known. Otherwise they are errors.
	LeaveOut bool
	// At is the time of the request; zero is that of the world.
	At time.Time
	// SkipValidation leaves out the validating phase.
	SkipValidation bool
}

// Evaluate sends a request through all webhooks. Mutations come first, in the order of the
// API server. A denial in the mutating phase ends the request; in the validating phase all
// webhooks are called.
func (e *Engine) Evaluate(ctx context.Context, request *admissionv1.AdmissionRequest, w *World, o Options) (*Result, error) {
	v := &evaluation{engine: e, host: w.environment(), request: *request, backend: o.Backend}
	if !o.At.IsZero() {
		v.host.Now = func() time.Time { return o.At }
	}
	v.result.Allowed = true
	if err := v.mutate(ctx, o); err != nil {
		return nil, err
	}
	if v.result.Allowed && !o.SkipValidation {
		for _, h := range e.hooks {
			if h.phase != registration.PhaseValidate {
				continue
			}
			if err := v.call(ctx, h, o); err != nil {
				return nil, err
			}
		}
	}
	v.result.Object = v.request.Object.Raw
	if len(v.result.Denials) > 0 {
		v.result.Status = &v.result.Denials[0]
	}
	return &v.result, nil
}

// mutate calls the mutating webhooks, and those that ask for it again if others have
// changed the object after them.
func (v *evaluation) mutate(ctx context.Context, o Options) error {
	changes := 0
	var again []*hook
	seen := map[*hook]int{} // the changes after a webhook
	for _, h := range v.engine.hooks {
		if h.phase != registration.PhaseMutate || !v.result.Allowed {
			continue
		}
		before := string(v.request.Object.Raw)
		calls := len(v.result.Outcomes)
		if err := v.call(ctx, h, o); err != nil {
			return err
		}
		if before != string(v.request.Object.Raw) {
			changes++
		}
		if seen[h] = changes; h.reinvoked && len(v.result.Outcomes) > calls {
			again = append(again, h)
		}
	}
	for _, h := range again {
		if seen[h] == changes || !v.result.Allowed {
			continue
		}
		outcomes := v.result.Outcomes
		if err := v.call(ctx, h, o); err != nil {
			return err
		}
		v.result.Outcomes = mergeOutcomes(outcomes, v.result.Outcomes[len(outcomes):])
	}
	return nil
}

// mergeOutcomes replaces outcomes with those of a second call that changed something.
func mergeOutcomes(first, second []Outcome) []Outcome {
	out := slices.Clone(first)
	for _, o := range second {
		i := slices.IndexFunc(out, func(other Outcome) bool { return other.Policy == o.Policy && other.Phase == o.Phase })
		switch {
		case i < 0:
			out = append(out, o)
		case o.Decision != policy.DecisionAllow && o.Decision != policy.DecisionSkip:
			out[i] = o
		}
	}
	return out
}

// call calls a webhook if it matches the current request.
func (v *evaluation) call(ctx context.Context, h *hook, o Options) error {
	attributes, err := v.attributes()
	if err != nil {
		return err
	}
	matches, resource, _, err := v.host.Matcher.Matches(attributes, v.host.Objects, h)
	if err != nil {
		return fmt.Errorf("matching the webhook %s: %w", h.GetName(), err)
	}
	if !matches {
		return nil
	}
	if h.conditions != nil {
		result := h.conditions.Match(ctx, v.versioned(attributes), nil, v.authorizer())
		if result.Error != nil {
			v.unevaluated(h, fmt.Errorf("evaluating match conditions: %w", result.Error))
			return nil //nolint:nilerr // it is an outcome
		}
		v.addConditions(h, result)
		if !result.Matches {
			return nil
		}
	}
	if given := attributes.GetResource(); resource != given {
		v.unevaluated(h, fmt.Errorf("the policy is for %s of %s, and the object is in %s: an API server converts it, this program cannot; give the object in that version", resource.Resource, resource.GroupVersion(), given.GroupVersion()))
		return nil
	}
	if h.backend != nil {
		return v.callBackend(h)
	}
	return v.evaluate(ctx, h, o)
}

// addConditions adds the results of the match conditions of a backend. If one is false, the
// others are not known.
func (v *evaluation) addConditions(h *hook, result webhookconditions.MatchResult) {
	if h.backend == nil {
		return
	}
	for i, c := range h.backend.Spec.MatchConditions {
		if result.Matches || result.FailedConditionName == c.Name {
			v.result.Conditions = append(v.result.Conditions, Condition{Policy: h.backend.Name, Field: fmt.Sprintf("spec.matchConditions[%d].expression", i), Matches: result.Matches})
		}
	}
}

// unevaluated adds an error to every policy of a webhook. The request does not pass, because
// the decision of an API server is not known.
func (v *evaluation) unevaluated(h *hook, err error) {
	v.result.Allowed = false
	v.result.Denials = append(v.result.Denials, metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonInternalError, Code: 500})
	names := []string{}
	if h.policies != nil {
		names = h.policies.Names()
	} else if h.backend != nil {
		names = append(names, h.backend.Name)
	}
	for _, name := range names {
		v.result.Outcomes = append(v.result.Outcomes, Outcome{Policy: name, Phase: h.phase, Decision: policy.DecisionError, Err: err})
	}
}

func (v *evaluation) callBackend(h *hook) error {
	outcome := Outcome{Policy: h.backend.Name, Phase: h.phase, Decision: DecisionBackend}
	if v.backend == nil {
		v.result.Outcomes = append(v.result.Outcomes, outcome)
		return nil
	}
	response := v.backend(h.backend.Name)
	if response == nil {
		v.unevaluated(h, errors.New("the backend is called, and no answer is given for it"))
		return nil
	}
	outcome.Response, outcome.Decision = response, policy.DecisionAllow
	if !response.Allowed {
		outcome.Decision = policy.DecisionDeny
	}
	if len(response.Patch) > 0 {
		outcome.Decision = policy.DecisionMutate
	}
	v.result.Outcomes = append(v.result.Outcomes, outcome)
	return v.apply(response)
}

// evaluate evaluates the policies of a webhook.
func (v *evaluation) evaluate(ctx context.Context, h *hook, o Options) error {
	first := len(v.result.Outcomes)
	request := v.request // policies do not change it
	response, err := v.run(ctx, h, h.policies, &request)
	if err != nil {
		return err
	}
	var left []Outcome
	if o.LeaveOut {
		if left, err = v.unanswered(ctx, h, first, &request); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		v.result.Outcomes = v.result.Outcomes[:first]
		if response, err = v.run(ctx, h, without(h.policies, left), &request); err != nil {
			return err
		}
	}
	if o.Details {
		if err := v.addDetails(ctx, h, first, &request); err != nil {
			return err
		}
	}
	v.result.Outcomes = append(v.result.Outcomes, left...)
	return v.apply(response)
}

// run evaluates the policies of a group, and adds their outcomes.
func (v *evaluation) run(
	ctx context.Context, h *hook, g *policy.Group, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	host := v.host
	first := len(v.result.Outcomes)
	host.Observe = func(name string, _ admissionv1.Operation, decision policy.Decision, _ time.Duration) {
		v.observe(first, Outcome{Policy: name, Phase: h.phase, Decision: decision})
	}
	return run(ctx, g, h.phase, request, host)
}

// unanswered returns the policies of a webhook that fail because a check of the authorizer has no answer.
func (v *evaluation) unanswered(
	ctx context.Context, h *hook, first int, request *admissionv1.AdmissionRequest,
) (out []Outcome, err error) {
	for _, o := range v.result.Outcomes[first:] {
		if o.Decision != policy.DecisionError {
			continue
		}
		asked := &askedAuthorizer{UnconditionalAuthorizer: v.authorizer()}
		host := v.host
		host.Authorizer = asked
		if _, err := run(ctx, h.alone[o.Policy], h.phase, request, host); err != nil {
			return nil, err
		}
		if asked.unanswered != nil {
			o.Decision, o.Err = DecisionNotEvaluated, asked.unanswered
			out = append(out, o)
		}
	}
	return out, nil
}

// without returns a group without the policies of some outcomes.
func without(g *policy.Group, left []Outcome) *policy.Group {
	return g.Without(func(name string) bool {
		return slices.ContainsFunc(left, func(o Outcome) bool { return o.Policy == name })
	})
}

// observe adds an outcome. In the mutating phase a policy has one for each of its bindings
// and params; the first in the order of precedence counts.
func (v *evaluation) observe(first int, o Outcome) {
	i := slices.IndexFunc(v.result.Outcomes[first:], func(other Outcome) bool { return other.Policy == o.Policy })
	if i < 0 {
		v.result.Outcomes = append(v.result.Outcomes, o)
		return
	}
	order := policy.Decisions()
	if known := &v.result.Outcomes[first+i]; slices.Index(order, o.Decision) < slices.Index(order, known.Decision) {
		known.Decision = o.Decision
	}
}

func run(ctx context.Context, g *policy.Group, phase registration.Phase, request *admissionv1.AdmissionRequest, host policy.Environment) (*admissionv1.AdmissionResponse, error) {
	if phase == registration.PhaseMutate {
		return g.Mutate(ctx, request, host)
	}
	return g.Validate(ctx, request, host)
}

// addDetails evaluates each policy alone that has something to say.
func (v *evaluation) addDetails(ctx context.Context, h *hook, first int, request *admissionv1.AdmissionRequest) error {
	for i := range v.result.Outcomes[first:] {
		outcome := &v.result.Outcomes[first+i]
		switch outcome.Decision {
		case policy.DecisionAllow, policy.DecisionSkip, policy.DecisionUnmatched:
			continue
		}
		response, err := run(ctx, h.alone[outcome.Policy], outcome.Phase, request, v.host)
		if err != nil {
			return err
		}
		outcome.Response = response
	}
	return nil
}

// apply adds a response to the result, and its patch to the object.
func (v *evaluation) apply(response *admissionv1.AdmissionResponse) error {
	for _, warning := range response.Warnings {
		if !slices.Contains(v.result.Warnings, warning) {
			v.result.Warnings = append(v.result.Warnings, warning)
		}
	}
	for key, value := range response.AuditAnnotations {
		if v.result.AuditAnnotations == nil {
			v.result.AuditAnnotations = map[string]string{}
		}
		if before := v.result.AuditAnnotations[key]; key == exceptedKey && before != "" && before != value {
			value = before + ", " + value // of another webhook
		}
		v.result.AuditAnnotations[key] = value
	}
	if !response.Allowed {
		v.result.Allowed = false
		status := metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden}
		if response.Result != nil {
			status = *response.Result
		}
		v.result.Denials = append(v.result.Denials, status)
		return nil
	}
	if len(response.Patch) == 0 {
		return nil
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return fmt.Errorf("reading the patch: %w", err)
	}
	patched, err := patch.Apply(v.request.Object.Raw)
	if err != nil {
		return fmt.Errorf("applying the patch: %w", err)
	}
	v.request.Object.Raw, v.result.Changed, v.matched = patched, true, nil
	return nil
}

// attributes returns the attributes of the current request for matching, with the
// metadata of its objects.
func (v *evaluation) attributes() (admission.Attributes, error) {
	if v.matched != nil {
		return v.matched, nil
	}
	r := &v.request
	object, err := partial(r.Object.Raw)
	if err != nil {
		return nil, err
	}
	old, err := partial(r.OldObject.Raw)
	if err != nil {
		return nil, err
	}
	v.matched = nativeengine.AttributesOf(r, object, old, nil)
	return v.matched, nil
}

// versioned returns the request for match conditions.
func (v *evaluation) versioned(attributes admission.Attributes) *admission.VersionedAttributes {
	return &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: attributes.GetKind(),
		VersionedObject:    admission.NewLazyObject(whole(v.request.Object.Raw)),
		VersionedOldObject: admission.NewLazyObject(whole(v.request.OldObject.Raw)),
	}
}

func (v *evaluation) authorizer() authorizer.UnconditionalAuthorizer {
	if v.host.Authorizer != nil {
		return v.host.Authorizer
	}
	return Answers(nil)
}
