package policy

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/response"
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
	denied := a.Denied()
	results := p.validate(ctx, on, host)
	if on.template != "" {
		p.markTemplate(results, on.template)
	}
	p.traceResults(ctx, results)
	p.reportFailures(results, host)
	decision := a.add(p, results)
	isSkipped := a.Denied() != denied && a.maySkip(p, on, host)
	if isSkipped {
		a.KeepDenials(denied)
	}
	if a.Denied() == denied && p.deniesPods(on, results) {
		a.warnPods(p, on)
	}
	if isSkipped {
		return DecisionBreakGlass
	}
	if host.reports(decision) {
		p.reportResults(on, decision, results, host)
	}
	return decision
}

// deniesPods reports whether the policy denies the Pods that controllers create from a template
// with these results. Controllers have no permission to skip policies, new Pods do not ratchet,
// and the actions about Pods are those of the bindings.
func (c *Compiled) deniesPods(on *subject, results []result) bool {
	if on.template == "" || c.templates.operation != admission.Create {
		return false
	}
	return slices.ContainsFunc(results, func(r result) bool {
		if r.err != nil {
			return c.failurePolicy != admissionregistrationv1.Ignore
		}
		for i, d := range r.decisions {
			v := r.validation(i)
			isFalse := d.Action != validating.ActionAdmit || v.ratchets() || v.excepted != nil && !v.podsExcepted
			if isFalse && r.binding.denies() {
				return true
			}
		}
		return slices.ContainsFunc(r.annotations, func(x validating.PolicyAuditAnnotation) bool {
			return x.Action == validating.AuditAnnotationActionError
		})
	})
}

// warnPods warns about a workload that passes although a policy denies its Pods.
func (a *answer) warnPods(p *Compiled, on *subject) {
	a.WarnOnce(fmt.Sprintf("WebhookPolicy '%s' will deny the Pods that controllers create from %s: "+
		"correct the template, or exclude the workload from the policy", p.name, on.template))
}

// skip reverts one step of the mutating phase if the user may skip its policy. It checks
// the permission only if the step has an effect.
func (a *answer) skip(s *step, outcome Decision, before runtime.Object, host Environment) bool {
	on := s.on
	refuses := outcome == DecisionDeny ||
		outcome == DecisionError && s.policy.failurePolicy != admissionregistrationv1.Ignore && !s.previews()
	changed := on.versioned.VersionedObject.Object() != before
	if (!refuses && !changed) || !a.maySkip(s.policy, on, host) {
		return false
	}
	if refuses && on.template != "" && s.policy.templates.operation == admission.Create {
		a.warnPods(s.policy, on)
	}
	on.versioned.UpdateObject(before)
	return true
}

// maySkip reports whether the user of a request may skip a policy, and adds it to the
// audit log and to the warnings. Without a decision of the authorizer the user may not.
func (a *answer) maySkip(p *Compiled, on *subject, host Environment) (may bool) {
	if !p.breakGlass && !host.BreakGlass {
		return false
	}
	defer p.recovered(host, func() { may = false })
	decision, _, err := on.authorizer.Ask(authorizer.AttributesRecord{
		User:            on.versioned.GetUserInfo(),
		Verb:            breakGlassVerb,
		APIGroup:        v1alpha1.GroupName,
		APIVersion:      v1alpha1.GroupVersion.Version,
		Resource:        "webhookpolicies",
		Name:            p.name,
		ResourceRequest: true,
	})
	_ = on.authorizer.TakeError() // it is no error of an expression
	if err != nil {
		const text = "WebhookPolicy '%s' was not skipped: whether you may skip it is not known: %s"
		a.Warn(fmt.Sprintf(text, p.name, truncate.String(err.Error(), response.MaxOneMessage)))
		return false
	}
	if decision != authorizer.DecisionAllow {
		return false
	}
	if !slices.Contains(a.skipped, p.name) {
		a.skipped = append(a.skipped, p.name)
		a.Warn(fmt.Sprintf("WebhookPolicy '%s' skipped: you have the verb %s", p.name, breakGlassVerb))
	}
	return true
}

// annotateSkipped adds the skipped policies to the audit annotations.
func (a *answer) annotateSkipped() { a.annotateNames(auditBreakGlassKey, a.skipped) }
