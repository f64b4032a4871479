package policy

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/matchresources"
	"github.com/ostiary/ostiary/internal/objectpatch"
)

// addMutations adds what the mutations of the policy do with a stored object.
func (a *Auditor) addMutations(ctx context.Context, out *Audited, raw *admissionv1.AdmissionRequest, host Environment) {
	for i := range a.groups {
		g := &a.groups[i]
		_, all, err := g.prepare(ctx, raw, host, g.readsToMutate(raw, host))
		if err != nil {
			*out = a.undecided(err)
			return
		}
		for _, m := range all {
			a.mutate(ctx, out, m.on, g.selectors, host)
		}
	}
}

// mutate runs the mutations for a subject that the selectors match. The
// validations have reported objects that cannot be decoded.
func (a *Auditor) mutate(ctx context.Context, out *Audited, on *subject, selectors *matchresources.Criteria, host Environment) {
	if on.unreadable != nil || on.versioned.VersionedObject.Object() == nil {
		return
	}
	if matches, err := on.selectedBy(selectors, host); err != nil || !matches {
		return
	}
	before := on.versioned.VersionedObject.Object()
	steps := a.policy.steps(ctx, on, host)
	for i := range steps {
		s := &steps[i]
		switch s.run(ctx, host) {
		case DecisionError:
			a.addError(out, s, host)
		case DecisionSkip:
			out.Decision = first(out.Decision, DecisionSkip)
		default:
			out.addMutated()
		}
	}
	after := on.versioned.VersionedObject.Object()
	out.WouldChange = out.WouldChange || after != before && !objectpatch.Equal(before, after)
}

// addMutated makes the object one that the policy applies to. Without validations, they skip it.
func (o *Audited) addMutated() {
	if o.Decision == DecisionUnmatched || o.Decision == DecisionSkip {
		o.Decision = DecisionAllow
	}
}

// addError adds the error of a step, which denies the request with failurePolicy Fail.
func (a *Auditor) addError(out *Audited, s *step, host Environment) {
	out.Decision = first(out.Decision, DecisionError)
	out.Denied = out.Denied || a.policy.failurePolicy != admissionregistrationv1.Ignore && !s.previews()
	out.Violations = append(out.Violations, Violation{
		Decision: DecisionError, Binding: s.binding.name, Template: s.on.template,
		Message: a.policy.errorText(s.err, a.policy.reportsValues(s.on, host)),
	})
}
