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
	// breakGlassVerb is the verb on a policy that permits a user to skip it.
	breakGlassVerb = "breakglass"
	// auditBreakGlassKey is the key of the annotation that lists skipped policies. The
	// keys of policies contain a dot.
	auditBreakGlassKey = "breakglass"
	maxSkippedNames    = 64 // in one annotation
)

// applyBreakGlass evaluates one policy in the validating phase and adds its results. If
// the user may skip the policy, its denials have no effect; its warnings and audit
// annotations stay. It checks the permission only for a denial.
func (a *answer) applyBreakGlass(ctx context.Context, p *Compiled, on *subject, host Environment) Decision {
	denials, denied := len(a.denials), a.denied
	results := p.validate(ctx, on, host)
	if on.template != "" {
		p.markTemplate(results, on.template)
	}
	p.traceResults(ctx, results)
	p.reportFailures(results, host)
	decision := a.add(p, results)
	if a.denied != denied && a.maySkip(p, on, host) {
		a.denials, a.denied = a.denials[:denials], denied
		return DecisionBreakGlass
	}
	if host.reports(decision) {
		p.reportResults(on, decision, results, host)
	}
	return decision
}

// skip reverts one step of the mutating phase if the user may skip its policy. It checks
// the permission only if the step has an effect.
func (a *answer) skip(s *step, outcome Decision, before runtime.Object, host Environment) bool {
	on := s.on
	refuses := outcome == DecisionDeny || outcome == DecisionError && s.policy.failurePolicy != admissionregistrationv1.Ignore
	changed := on.versioned.VersionedObject.Object() != before
	if (!refuses && !changed) || !a.maySkip(s.policy, on, host) {
		return false
	}
	on.versioned.UpdateObject(before)
	return true
}

// maySkip reports whether the user of a request may skip a policy, and adds it to the
// audit log. Without a decision of the authorizer the user may not.
func (a *answer) maySkip(p *Compiled, on *subject, host Environment) (may bool) {
	if !p.breakGlass && !host.BreakGlass {
		return false
	}
	defer p.recovered(host, func() { may = false })
	decision, _, err := on.authorizer.Authorize(on.authorizer.ctx, authorizer.AttributesRecord{
		User:            on.versioned.GetUserInfo(),
		Verb:            breakGlassVerb,
		APIGroup:        v1alpha1.GroupName,
		APIVersion:      v1alpha1.GroupVersion.Version,
		Resource:        "webhookpolicies",
		Name:            p.name,
		ResourceRequest: true,
	})
	_ = on.authorizer.failed() // it is no error of an expression
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

// annotateSkipped adds the skipped policies to the audit annotations.
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
