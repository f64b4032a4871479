package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/exceptions"
)

// validations are the names of the validations of a policy, and which of them ratchet.
type validations struct {
	names    []string
	ratchets []bool
	any      bool // one of them ratchets
}

// newValidations returns nil if no validation has a name or ratchets.
func newValidations(b *builder) *validations {
	spec := &b.policy.Spec
	v := &validations{}
	named := false
	for i := range spec.Validations {
		name, ratchets := spec.Validations[i].Name, spec.Ratchets(i)
		v.names, v.ratchets = append(v.names, name), append(v.ratchets, ratchets)
		named, v.any = named || name != "", v.any || ratchets
	}
	if !named && !v.any {
		return nil
	}
	return v
}

// mayRatchet reports whether a false validation can let a request pass.
func (c *Compiled) mayRatchet(on *subject) bool {
	return c.validations != nil && c.validations.any && on.storedObject() != nil
}

// label names a validation by its name, or by its field.
func (v *validations) label(index int) string {
	if v.names[index] != "" {
		return v.names[index]
	}
	return fmt.Sprintf("spec.validations[%d]", index)
}

// validationRun is the evaluation of the validations of a policy for one request and
// param.
type validationRun struct {
	stored    *admission.LazyObject // nil if there is none
	results   []celplugin.EvaluationResult
	ratcheted []bool // the stored object fails the validation too
}

type validationRunKey struct{}

// follow returns a context in which evaluations of followedValidations fill the run. It
// returns no run for a policy without names and ratchets.
func (v *validations) follow(ctx context.Context, on *subject) (context.Context, *validationRun) {
	if v == nil {
		return ctx, nil
	}
	run := &validationRun{stored: on.storedObject(), ratcheted: make([]bool, len(v.names))}
	return context.WithValue(ctx, validationRunKey{}, run), run
}

// decided reports whether a decision is that of the validation with its index, and not an
// error of the whole policy.
func (run *validationRun) decided(index int, decisions []validating.PolicyDecision) bool {
	if run == nil || len(run.results) != len(decisions) {
		return false
	}
	d, err := decisions[index], run.results[index].Error
	return d.Evaluation != validating.EvalError || err != nil && err.Error() == d.Message
}

// ratchets reports whether the stored object fails a validation too.
func (run *validationRun) ratchets() bool { return run != nil && slices.Contains(run.ratcheted, true) }

// apply adds the names of validations to the result of a policy, and the labels of those
// that the stored object fails too: see pluginResult.ratchet.
func (v *validations) apply(run *validationRun, result *pluginResult) {
	if v == nil {
		return
	}
	result.validations = make([]validationResult, len(result.Decisions))
	for i := range result.Decisions {
		if !run.decided(i, result.Decisions) {
			continue
		}
		r := &result.validations[i]
		r.name = v.names[i]
		if run.ratcheted[i] && result.Decisions[i].Evaluation == validating.EvalDeny {
			r.ratcheted = v.label(i)
		}
	}
}

// ofBatch adds the names of validations to a result of a batch, which makes none that
// ratchets. Each decision, also an error, is that of its validation.
func (v *validations) ofBatch(decided validating.ValidateResult) pluginResult {
	out := pluginResult{ValidateResult: decided}
	if v == nil || len(decided.Decisions) == 0 { // a match condition is false
		return out
	}
	out.validations = make([]validationResult, len(v.names))
	for i, name := range v.names {
		out.validations[i].name = name
	}
	return out
}

// validationResult is the result of one validation besides its decision.
type validationResult struct {
	name      string // empty without a name
	ratcheted string // the label of a validation that fails and lets the request pass
	// The exception that lets the request pass; nil without one. Another one can be for the Pods
	// of a template.
	excepted     *exceptions.Entry
	podsExcepted bool
}

func (r validationResult) ratchets() bool { return r.ratcheted != "" }

// exception names the exception that lets the request pass; "" without one.
func (r validationResult) exception() string {
	if r.excepted == nil {
		return ""
	}
	return r.excepted.String()
}

// reportFailures reports the named validations that are false, each once.
func (c *Compiled) reportFailures(results []result, host Environment) {
	if host.Failed == nil || c.validations == nil {
		return
	}
	var reported []string
	for i := range results {
		for j, d := range results[i].decisions {
			name := results[i].validation(j).name
			if name != "" && d.Evaluation == validating.EvalDeny && !slices.Contains(reported, name) {
				reported = append(reported, name)
				host.Failed(c.name, name)
			}
		}
	}
}

// followedValidations evaluates validations and writes the results to the run of the
// context. It evaluates those that ratchet again with the stored object as the object, if
// they are false.
type followedValidations struct {
	celplugin.ConditionEvaluator
	ratchets []bool
	compiled []celplugin.CompilationResult
	declared celengine.Declared
}

// ForInput implements celplugin.ConditionEvaluator.
func (e followedValidations) ForInput(ctx context.Context, attr *admission.VersionedAttributes,
	request *admissionv1.AdmissionRequest, vars celplugin.OptionalVariableBindings, namespace *corev1.Namespace,
	budget int64) ([]celplugin.EvaluationResult, int64, error) {
	results, left, err := e.ConditionEvaluator.ForInput(ctx, attr, request, vars, namespace, budget)
	run, ok := ctx.Value(validationRunKey{}).(*validationRun)
	if err != nil || !ok {
		return results, left, err
	}
	run.results = results
	var failed []int
	for i := range results {
		if e.ratchets[i] && results[i].Error == nil && results[i].EvalResult == types.False {
			failed = append(failed, i)
		}
	}
	if len(failed) == 0 || run.stored == nil {
		return results, left, nil
	}
	again := make([]celplugin.CompilationResult, len(failed))
	for i, index := range failed {
		again[i] = e.compiled[index]
	}
	old := *attr
	old.VersionedObject = *run.stored
	stored, left := e.onStored(ctx, again, &old, request, vars, namespace, left)
	for i := range stored {
		run.ratcheted[failed[i]] = stored[i].Error == nil && stored[i].EvalResult == types.False
	}
	return results, left, nil
}

// onStored evaluates validations on the stored object, as for an update that changes nothing
// or for a new Pod of the stored template, and returns the budget that is left. It returns no
// results after an error: the validations then fail as they do without ratchet, and messages
// have the budget from before.
func (e followedValidations) onStored(ctx context.Context, again []celplugin.CompilationResult,
	old *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, vars celplugin.OptionalVariableBindings,
	namespace *corev1.Namespace, budget int64) ([]celplugin.EvaluationResult, int64) {
	asker, _ := vars.Authorizer.(*accessreview.RequestAuthorizer)
	if asker != nil && asker.Err() != nil {
		return nil, budget // the policy fails with this error
	}
	results, left, err := celengine.NewConditions(again, e.declared).ForInput(tracedAsStored(ctx), old, request, vars, namespace, budget)
	if asker != nil && asker.TakeError() != nil || err != nil {
		return nil, budget
	}
	return results, left
}

// tracedAsStored marks evaluations with the stored object in the trace. Its lookups have the keys of the stored object,
// and find the objects that exist now.
func tracedAsStored(ctx context.Context) context.Context {
	ctx = celengine.WithLookupsAgain(ctx)
	t := traceOf(ctx)
	report := t.Expression
	if report == nil {
		return ctx
	}
	t.Expression = func(e Evaluated) {
		e.Stored = true
		report(e)
	}
	return WithTrace(ctx, t)
}

// A validation ratchets only if the policy denies the stored object too, so that it would
// deny an update that changes nothing. An update can pass the selectors and conditions that
// the stored object does not pass: a validation that is false for an object to which the
// policy has never applied must not let it pass.
//
// The rules match the stored object whenever they match the update, because both have the
// same resource, namespace and name.

// asStored returns the subject as it is in an update of the stored object that changes nothing,
// or for a new Pod of the stored template. There is a stored object.
func (on *subject) asStored() *subject {
	stored := *on
	object, oldObject := on.storedObject().Object(), on.versioned.VersionedOldObject.Object()
	versioned := *on.versioned
	versioned.Attributes = withObjects(versioned.Attributes, versioned.GetOperation(), object, oldObject)
	versioned.VersionedObject = admission.NewLazyObject(object)
	stored.versioned = &versioned
	if on.selected != nil {
		stored.selected = withObjects(on.selected, on.selected.GetOperation(), object, oldObject)
		stored.workload = on.before
	}
	stored.shared, stored.values, stored.read = nil, nil, nil
	stored.decoded, stored.decided, stored.later = nil, nil, nil
	return &stored
}

// appliesToStored reports whether the policy applies to the stored object: its selectors
// match, and every match condition is true. An error means that it does not.
func (c *Compiled) appliesToStored(ctx context.Context, on *subject, param runtime.Object, host Environment) bool {
	stored := on.asStored()
	if c.templates != nil && on.template != "" && c.templates.owned(stored.workload) {
		return false
	}
	if matches, err := stored.selectedBy(c.selectors, host); err != nil || !matches {
		return false
	}
	if c.mutator.matcher == nil {
		return true
	}
	result := c.mutator.matcher.Match(tracedAsStored(ctx), stored.versioned, param, on.authorizer)
	return errors.Join(result.Error, on.authorizer.TakeError()) == nil && result.Matches
}

// appliesToStored reports whether the binding applies to the stored object.
func (b *binding) appliesToStored(on *subject, host Environment) bool {
	matches, err := on.asStored().selectedBy(b.match, host)
	return err == nil && matches
}

// ratchet returns the decisions for a binding. Those about validations that the stored
// object fails too let the request pass if the binding applies to the stored object.
func (v *pluginResult) ratchet(b *binding, on *subject, host Environment) ([]validating.PolicyDecision, []validationResult) {
	if !slices.ContainsFunc(v.validations, validationResult.ratchets) {
		return v.Decisions, v.validations
	}
	// Other bindings share the originals.
	decisions, validations := slices.Clone(v.Decisions), slices.Clone(v.validations)
	applies := b.appliesToStored(on, host)
	for i := range validations {
		switch {
		case !validations[i].ratchets():
		case applies:
			decisions[i].Action, decisions[i].Evaluation = validating.ActionAdmit, validating.EvalAdmit
		default:
			validations[i].ratcheted = ""
		}
	}
	return decisions, validations
}
