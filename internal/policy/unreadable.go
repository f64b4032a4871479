package policy

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
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
// that can match denies. A DELETE is allowed, with a warning and an annotation, so that
// every stored object can be deleted.
func (c *Compiled) denyUnreadable(r *request, host Environment) (results []result) {
	for i := range c.bindings {
		b := &c.bindings[i]
		matches, err := b.mayMatch(r, host)
		switch {
		case err != nil && r.raw.Operation != admissionv1.Delete:
			results = append(results, result{binding: b, err: err})
			continue
		case err == nil && !matches:
			continue
		}
		results = append(results, b.denyUnreadable(c, r))
	}
	return results
}

func (b *binding) denyUnreadable(c *Compiled, r *request) result {
	message := r.unreadable.Error()
	if r.raw.Operation != admissionv1.Delete {
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

// mayMatch reports whether a binding can match an unreadable object, whose labels are not
// known.
func (b *binding) mayMatch(r *request, host Environment) (bool, error) {
	known, ok := b.match.(*criteria)
	if !ok {
		return b.matches(r, host)
	}
	anyObject := *known
	anyObject.objects = labels.Everything()
	return (&binding{match: &anyObject}).matches(r, host)
}

// mutateUnreadable decides about unreadable objects in the mutating phase: every matching
// binding denies, with any actions, as for a failed mutation.
func (g *Group) mutateUnreadable(ctx context.Context, r *request, matched []*batch, host Environment) *admissionv1.AdmissionResponse {
	var a answer
	for _, p := range policiesOf(matched) {
		start := host.Now()
		decision := a.applyBreakGlass(ctx, p.denyingBindings(), r, host)
		if host.Observe != nil {
			host.Observe(p.name, r.raw.Operation, decision, host.Now().Sub(start))
		}
	}
	out := a.mutation(r)
	a.addDetails(out)
	return out
}

// denyingBindings returns the policy with bindings that deny, for requests that are not
// evaluated.
func (c *Compiled) denyingBindings() *Compiled {
	out := &Compiled{name: c.name, failurePolicy: c.failurePolicy, breakGlass: c.breakGlass, bindings: make([]binding, len(c.bindings))}
	for i, b := range c.bindings {
		b.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		out.bindings[i] = b
	}
	return out
}
