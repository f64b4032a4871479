package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// breakGlassVerb is what has to be allowed on a policy for it to be skipped.
	breakGlassVerb = "breakglass"
	// auditBreakGlassKey is of the annotation that lists the policies skipped.
	// Keys of policies' own annotations hold a dot.
	auditBreakGlassKey = "breakglass"
	maxSkippedNames    = 64 // in one annotation
)

// applyBreakGlass evaluates one policy in the validating phase and takes in what comes of
// it. Where the user may skip the policy, what it denies passes; its warnings
// and audit annotations stay. Nobody is asked about a request that it passes.
func (a *answer) applyBreakGlass(ctx context.Context, p *Compiled, r *request, host Environment) Decision {
	denials, denied := len(a.denials), a.denied
	decision := a.add(p, p.validate(ctx, r, host))
	if a.denied == denied || !a.maySkip(p, r, host) {
		return decision
	}
	a.denials, a.denied = a.denials[:denials], denied
	return DecisionBreakGlass
}

// skip undoes what one step of the mutating phase did, where the user may skip
// its policy. What has no effect is not asked about: to have it skipped comes to
// the same.
func (a *answer) skip(s *step, outcome Decision, before runtime.Object, r *request, host Environment) bool {
	refuses := outcome == DecisionDeny || outcome == DecisionError && s.policy.failurePolicy != admissionregistrationv1.Ignore
	changed := r.versioned.VersionedObject.Object() != before
	if (!refuses && !changed) || !a.maySkip(s.policy, r, host) {
		return false
	}
	r.versioned.UpdateObject(before)
	return true
}

// maySkip reports whether the user of a request may skip a policy, and notes it
// for the audit log. Where that cannot be found out, the user may not.
func (a *answer) maySkip(p *Compiled, r *request, host Environment) (may bool) {
	if !p.breakGlass && !host.BreakGlass {
		return false
	}
	defer p.recovered(host, func() { may = false })
	decision, _, err := r.authorizer.Authorize(r.authorizer.ctx, authorizer.AttributesRecord{
		User:            r.versioned.GetUserInfo(),
		Verb:            breakGlassVerb,
		APIGroup:        v1alpha1.GroupName,
		APIVersion:      v1alpha1.GroupVersion.Version,
		Resource:        "webhookpolicies",
		Name:            p.name,
		ResourceRequest: true,
	})
	_ = r.authorizer.failed() // it is no error of an expression
	if err != nil {
		a.warn(fmt.Sprintf("WebhookPolicy '%s' was not skipped: whether you may skip it is not known: %s", p.name, truncate.String(err.Error(), maxOneMessage)))
		return false
	}
	if decision != authorizer.DecisionAllow {
		return false
	}
	if !slices.Contains(a.skipped, p.name) {
		a.skipped = append(a.skipped, p.name)
	}
	return true
}

// annotateSkipped tells the audit log which policies were skipped.
func (a *answer) annotateSkipped() {
	if len(a.skipped) == 0 {
		return
	}
	shown := a.skipped[:min(len(a.skipped), maxSkippedNames)]
	text := strings.Join(shown, separator)
	if more := len(a.skipped) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	a.setAnnotation(auditBreakGlassKey, text)
}
