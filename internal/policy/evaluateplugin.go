package policy

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/objectpatch"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

// InheritState gives the plugin of the policy the state of an earlier generation. It is
// called before any other method.
func (c *Compiled) InheritState(before *Compiled) {
	if keeper, ok := c.plugin.(pluginapi.StatefulPlugin); ok && before.plugin != nil {
		c.plugin = keeper.InheritState(before.plugin)
	}
}

// call returns the Call of a request.
func (c *Compiled) call(on *subject, host Environment) *pluginapi.Call {
	if on.decoded == nil {
		on.decoded = pluginapi.Decoded{}
	}
	attributes, resource := current{on.versioned}, schema.GroupVersionResource(on.raw.Resource)
	if on.selected != nil {
		pod := *on.versioned
		pod.Attributes = on.selected
		attributes, resource = current{&pod}, on.selected.GetResource()
	}
	return &pluginapi.Call{
		Attributes: attributes,
		Resource:   resource,
		Namespaces: host.Namespaces,
		Listed:     host.Listed,
		Authorizer: on.authorizer,
		Kinds:      host.Kinds,
		Images:     host.Images,
		Pods:       host.Pods,
		Now:        host.Now,
		Decoded:    on.decoded,
	}
}

// current holds attributes with the current objects, in the version of the request.
type current struct{ *admission.VersionedAttributes }

// GetObject implements admission.Attributes.
func (a current) GetObject() runtime.Object { return a.VersionedObject.Object() }

// GetOldObject implements admission.Attributes.
func (a current) GetOldObject() runtime.Object { return a.VersionedOldObject.Object() }

// pluginResult is the result of a policy in the validating phase.
type pluginResult struct {
	validating.ValidateResult
	codes       []int32 // of the decisions; without an entry, that of the reason
	warnings    []string
	validations []validationResult // of the decisions; nil without names and ratchets
}

// evaluatePlugin validates a request with the plugin, if it satisfies the
// matchConditions.
func (c *Compiled) evaluatePlugin(ctx context.Context, on *subject, host Environment) pluginResult {
	if err := c.mutator.err; err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if m := c.mutator.matcher; m != nil {
		matched := m.Match(ctx, on.versioned, nil, on.authorizer)
		if err := errors.Join(matched.Error, on.authorizer.TakeError()); err != nil {
			return pluginResult{ValidateResult: c.failure(err)}
		}
		if !matched.Matches {
			return pluginResult{}
		}
	}
	v, ok := c.plugin.(pluginapi.Validator)
	if !ok {
		return pluginResult{}
	}
	call := c.call(on, host)
	err := v.Validate(ctx, call)
	if unanswered := on.authorizer.TakeError(); unanswered != nil {
		err = unanswered
	}
	refusals, other := pluginapi.Refusals(err)
	if other != nil {
		return pluginResult{ValidateResult: c.failure(other)}
	}
	out := pluginResult{warnings: call.Warnings}
	out.AuditAnnotations = call.Annotations
	for _, s := range refusals {
		out.Decisions = append(out.Decisions, validating.PolicyDecision{
			Action: validating.ActionDeny, Evaluation: validating.EvalDeny, Message: s.Message, Reason: s.Reason,
		})
		out.codes = append(out.codes, s.Code)
	}
	if len(refusals) == 0 {
		out.Decisions = []validating.PolicyDecision{{Action: validating.ActionAdmit, Evaluation: validating.EvalAdmit}}
	}
	return out
}

// admit changes the object with the plugin. A denial takes effect only if the binding
// denies. Otherwise the validating phase reports it.
func (s *step) admit(ctx context.Context, host Environment) (Decision, error) {
	m, ok := s.policy.plugin.(pluginapi.Mutator)
	if !ok {
		return DecisionAllow, nil
	}
	before := s.on.versioned.VersionedObject.Object()
	after, err := m.Admit(ctx, s.policy.call(s.on, host))
	if unanswered := s.on.authorizer.TakeError(); unanswered != nil {
		err = unanswered
	}
	refusals, err := pluginapi.Refusals(err)
	switch {
	case err != nil:
		return DecisionError, err
	case len(refusals) > 0 && s.denies():
		s.refusals = refusals
		return DecisionDeny, nil
	case len(refusals) > 0 || objectpatch.Equal(before, after):
		return DecisionAllow, nil
	}
	if err := s.on.checkTemplate(before, after); err != nil {
		return DecisionError, s.on.atTemplate(err)
	}
	s.on.versioned.UpdateObject(after)
	if s.result != nil {
		s.again = append(s.again, 0)
	}
	return DecisionMutate, nil
}
