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

// UnreadableError says that an object could not be decoded, so that no policy
// can look at it. That is a decision, not an error: failurePolicy Ignore would
// let whoever writes such an object evade every policy.
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

// denyUnreadable is the result of a policy that cannot look at a request: of each
// binding that may match, that the object fails. What is stored can always be
// deleted: clients and the audit log are told instead.
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

// mayMatch is matches for an object that cannot be seen: any labels may be its.
func (b *binding) mayMatch(r *request, host Environment) (bool, error) {
	known, ok := b.match.(*criteria)
	if !ok {
		return b.matches(r, host)
	}
	anyObject := *known
	anyObject.objects = labels.Everything()
	return (&binding{match: &anyObject}).matches(r, host)
}

// mutateUnreadable answers in the mutating phase for objects that cannot be
// decoded: bindings that match deny, whatever their actions are, as they would
// for a mutation that fails.
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

// denyingBindings is the policy with bindings that deny. It is for requests that are
// not evaluated.
func (c *Compiled) denyingBindings() *Compiled {
	out := &Compiled{name: c.name, failurePolicy: c.failurePolicy, breakGlass: c.breakGlass, bindings: make([]binding, len(c.bindings))}
	for i, b := range c.bindings {
		b.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		out.bindings[i] = b
	}
	return out
}
