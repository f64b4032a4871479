package policy

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// auditRatchetedKey is the key of a policy's annotation that lists validations that a
	// request failed as the stored object does.
	auditRatchetedKey = "ratcheted"
	// ratchetedText follows the name of the policy in the warning about them.
	ratchetedText = " allowed request, because the stored object fails it too: "
)

// answer collects the decisions of the policies of one call.
type answer struct {
	response.Builder
	skipped   []string // policies
	suspended []string // policies
	excepted  []excepted
	previews  previews
	last      previewed
}

// validated returns the response of the validating phase.
func (a *answer) validated(r *request) *admissionv1.AdmissionResponse {
	a.annotateSkipped()
	a.annotateExcepted()
	a.annotateSuspended()
	return a.Validated(r.raw.UID, r.whole.versioned)
}

// add adds the results of one policy and returns its decision. It applies the actions of
// each binding to each decision, as the API server does.
func (a *answer) add(p *Compiled, results []result) Decision {
	var acted actions
	evaluated, failed := false, false
	annotations := response.Annotations{}
	for _, r := range results {
		if r.err != nil {
			failed = true
			a.denyMisconfigured(p, r.binding, r.binding.misconfigured(r.err).Error(), metav1.StatusReasonInvalid)
			continue
		}
		evaluated = evaluated || len(r.decisions)+len(r.annotations) > 0
		failed = failed || slices.ContainsFunc(r.decisions, isError)
		acted |= a.applyDecisions(p, r, annotations)
		a.WarnOnce(r.warnings...)
		if a.annotate(annotations, r) {
			failed = true
		}
	}
	a.Publish(p.name, annotations)
	switch {
	case failed:
		return DecisionError
	case len(results) == 0:
		return DecisionUnmatched
	case !evaluated:
		return DecisionSkip
	case acted == 0 && len(annotations) > 0:
		return DecisionAnnotate
	default:
		return acted.decision()
	}
}

// denyMisconfigured denies a request because of the configuration of a policy.
// failurePolicy alone decides, not the actions of the binding, as in the API server.
func (a *answer) denyMisconfigured(p *Compiled, b *binding, message string, reason metav1.StatusReason) {
	if p.failurePolicy != admissionregistrationv1.Ignore {
		message = truncate.String(message, response.MaxOneMessage)
		a.Deny(response.Denial{Message: b.subject + " denied request: " + message, Reason: reason})
	}
}

func (a *answer) applyDecisions(p *Compiled, r result, into response.Annotations) actions {
	var acted actions
	for i, d := range r.decisions {
		switch d.Action {
		case validating.ActionAdmit:
			switch v := r.validation(i); {
			case v.ratcheted != "":
				acted |= ratcheting
				a.applyRatchet(r, v.ratcheted, d, into)
			case v.excepted != nil:
				acted |= excepting
				a.exceptBy(p.name, p.label(i, v.name), r.template, v.excepted)
			}
		case validating.ActionDeny:
			acted |= a.applyActions(p, r, i, d)
		default: // no release of the validator returns another action
			acted |= acting
			const text = "%s denied request: internal error: unknown decision %q"
			a.Deny(response.Denial{Message: fmt.Sprintf(text, r.binding.subject, d.Action)})
		}
	}
	return acted
}

// isError reports whether a decision is an error, which includes unknown actions.
func isError(d validating.PolicyDecision) bool {
	return d.Evaluation == validating.EvalError || (d.Action != validating.ActionAdmit && d.Action != validating.ActionDeny)
}

func (a *answer) applyActions(p *Compiled, r result, index int, d validating.PolicyDecision) actions {
	var acted actions
	b, name := r.binding, r.validation(index).name
	message := r.prefix(name) + truncate.String(d.Message, response.MaxOneMessage)
	for _, action := range r.actions() {
		switch action {
		case admissionregistrationv1.Deny:
			acted |= acting
			a.Deny(response.Denial{
				Message:    b.subject + " denied request: " + message + b.help,
				Reason:     d.Reason,
				Code:       r.code(index),
				Validation: name,
				Template:   r.template,
			})
		case admissionregistrationv1.Warn:
			acted |= warning
			a.Warn("Validation failed for " + b.subject + ": " + message + b.help)
		case admissionregistrationv1.Audit:
			acted |= auditing
			native := validating.ValidationFailureValue{
				Message: message, Policy: p.name, Binding: b.name, ExpressionIndex: index, ValidationActions: r.actions(),
			}
			a.AddFailure(response.ValidationFailure{Validation: name, Template: r.template, ValidationFailureValue: native})
		}
	}
	return acted
}

// applyRatchet lets a request pass that fails a validation as the stored object does. The
// client gets a warning if the binding denies or warns.
func (a *answer) applyRatchet(r result, label string, d validating.PolicyDecision, into response.Annotations) {
	prefix := r.prefix(label)
	if slices.ContainsFunc(r.actions(), func(action admissionregistrationv1.ValidationAction) bool {
		return action != admissionregistrationv1.Audit
	}) {
		a.WarnOnce(r.binding.subject + ratchetedText + prefix + truncate.String(d.Message, response.MaxOneMessage) + r.binding.help)
	}
	a.Collect(into, validating.PolicyAuditAnnotation{Key: auditRatchetedKey, Value: strings.TrimSuffix(prefix, ": ")})
}

// validation returns the result of the validation of a decision besides it.
func (r result) validation(index int) validationResult {
	if index < len(r.validations) {
		return r.validations[index]
	}
	return validationResult{}
}

// actions returns the actions for decisions: for a pod template, they can differ from the final ones
// of the binding.
func (r result) actions() []admissionregistrationv1.ValidationAction {
	if r.template != "" && len(r.templateActions) > 0 && !r.binding.inStep {
		return r.templateActions
	}
	return r.binding.actions
}

// prefix begins a message with the name of a validation and the path of a pod template.
func (r result) prefix(name string) string {
	switch {
	case r.template == "" && name == "":
		return ""
	case r.template == "":
		return name + ": "
	case name == "":
		return r.template + ": "
	}
	return name + " at " + r.template + ": "
}

// code returns the code of a decision, or 0 for that of its reason.
func (r result) code(index int) int32 {
	if index < len(r.codes) {
		return r.codes[index]
	}
	return 0
}

// actions are the effects that a policy had on a request, as a set.
type actions uint8

const (
	acting actions = 1 << iota
	warning
	auditing
	ratcheting
	excepting
)

func (a actions) decision() Decision {
	switch {
	case a&acting != 0:
		return DecisionDeny
	case a&warning != 0:
		return DecisionWarn
	case a&auditing != 0:
		return DecisionAudit
	case a&ratcheting != 0:
		return DecisionRatchet
	case a&excepting != 0:
		return DecisionExcepted
	default:
		return DecisionAllow
	}
}

// annotate adds the audit annotations of one evaluation and reports whether one of them
// failed. A failure denies the request, with any action of the binding.
func (a *answer) annotate(into response.Annotations, r result) (failed bool) {
	for _, x := range r.annotations {
		switch x.Action {
		case validating.AuditAnnotationActionPublish:
			a.Collect(into, x)
		case validating.AuditAnnotationActionError:
			failed = true
			message := truncate.String(x.Error, response.MaxOneMessage)
			a.Deny(response.Denial{Message: r.binding.subject + " denied request: " + message})
		}
	}
	return failed
}
