package policy

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// A validation ratchets only if the policy denies the stored object too, so that it would
// deny an update that changes nothing. An update can pass the selectors and conditions that
// the stored object does not pass: a validation that is false for an object to which the
// policy has never applied must not let it pass.
//
// The rules match the stored object whenever they match the update, because both have the
// same resource, namespace and name.

// asStored returns the subject as it is in an update of the stored object that changes nothing.
func (on *subject) asStored() *subject {
	stored := *on
	old := on.versioned.VersionedOldObject.Object()
	versioned := *on.versioned
	versioned.Attributes = withObjects(on.versioned.Attributes, old, old)
	versioned.VersionedObject = admission.NewLazyObject(old)
	stored.versioned = &versioned
	if on.selected != nil {
		stored.selected, stored.workload = withObjects(on.selected, old, old), on.before
	}
	stored.typed, stored.decided = nil, nil
	return &stored
}

// appliesToStored reports whether the policy applies to the stored object: its selectors
// match, and every match condition is true. An error means that it does not.
func (c *Compiled) appliesToStored(ctx context.Context, on *subject, param runtime.Object, host Environment) bool {
	stored := on.asStored()
	if c.templates != nil && on.template != "" && c.templates.owned(stored.workload) {
		return false
	}
	if c.selectors != nil {
		if matches, err := c.selectors.matches(stored, host); err != nil || !matches {
			return false
		}
	}
	if c.mutator.matcher == nil {
		return true
	}
	result := c.mutator.matcher.Match(tracedAsStored(ctx), stored.versioned, param, on.authorizer)
	return errors.Join(result.Error, on.authorizer.failed()) == nil && result.Matches
}

// appliesToStored reports whether the binding applies to the stored object.
func (b *binding) appliesToStored(on *subject, host Environment) bool {
	matches, err := b.matches(on.asStored(), host)
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
