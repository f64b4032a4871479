package policy

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	auditUnreadableKey = "unreadable"
	maxUnreadable      = 512 // bytes of the decoder's error
)

// UnreadableError is the error for an object that cannot be decoded. It leads to a
// decision, and not to failurePolicy: with Ignore, the sender of such an object could
// evade every policy.
type UnreadableError struct {
	What string // the part of the review, as "request.object"
	Err  error
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("unreadable object at %s: %s: remove the value, make the object smaller, or delete it and create it again",
		e.What, truncate.String(e.Err.Error(), maxUnreadable))
}

// Unwrap implements errors.Unwrap.
func (e *UnreadableError) Unwrap() error { return e.Err }

// denyUnreadable returns the result of a policy for an unreadable request: each binding
// that can match an object with unknown labels denies. A DELETE is allowed, with a warning and an annotation, so that
// every stored object can be deleted.
func (c *Compiled) denyUnreadable(on *subject, host Environment) (results []result) {
	for i := range c.bindings {
		b := &c.bindings[i]
		matches, err := on.selectedBy(b.match.WithAnyObject(), host)
		switch {
		case err != nil && on.raw.Operation != admissionv1.Delete:
			results = append(results, result{binding: b, err: err})
			continue
		case err == nil && !matches:
			continue
		}
		if b, err = b.inEffect(on, host); err != nil && on.raw.Operation != admissionv1.Delete {
			results = append(results, result{binding: b, err: err})
			continue
		}
		results = append(results, b.denyUnreadable(c, on))
	}
	return results
}

func (b *binding) denyUnreadable(c *Compiled, on *subject) result {
	message := on.unreadable.Error()
	if on.raw.Operation != admissionv1.Delete {
		return result{binding: b, decisions: []validating.PolicyDecision{{
			Action: validating.ActionDeny, Evaluation: validating.EvalDeny, Message: message,
		}}}
	}
	return result{
		binding:     b,
		decisions:   []validating.PolicyDecision{{Action: validating.ActionAdmit, Evaluation: validating.EvalAdmit}},
		warnings:    []string{"WebhookPolicy '" + c.name + "' has not looked at this deletion: " + message},
		annotations: []validating.PolicyAuditAnnotation{{Key: auditUnreadableKey, Value: message, Action: validating.AuditAnnotationActionPublish}},
	}
}

// denyingBindings returns the policy with bindings that deny, whatever their actions are, for
// subjects that cannot be read: a failed mutation denies too. Those that preview mutations only
// record it.
func (c *Compiled) denyingBindings() *Compiled {
	out := &Compiled{
		name:          c.name,
		failurePolicy: c.failurePolicy,
		breakGlass:    c.breakGlass,
		bindings:      make([]binding, len(c.bindings)),
		templates:     &templates{}, // without actions of their own
	}
	for i, b := range c.bindings {
		b.setUnreadable()
		b.staged = slices.Clone(b.staged)
		for j := range b.staged {
			b.staged[j].setUnreadable()
		}
		out.bindings[i] = b
	}
	return out
}

// setUnreadable sets the action for an object that cannot be read.
func (b *binding) setUnreadable() {
	b.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	if b.previews() {
		b.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	}
}
