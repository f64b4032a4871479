package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/truncate"
)

// Bounds on one answer. What goes beyond is counted, not sent.
const (
	maxDenials      = 64
	maxWarnings     = 64
	maxFailures     = 50       // as the API server's own maxValidationFailures
	maxMessage      = 16 << 10 // bytes, all denials together
	maxOneMessage   = 6 << 10  // bytes; a message expression may give 5 KiB
	maxWarningText  = 64 << 10 // bytes, all warnings together
	maxAnnotations  = 64 << 10 // bytes, all audit annotations together
	keptForFailures = 16 << 10 // bytes of them that values of policies leave to validation_failure
	auditFailureKey = "validation_failure"
	auditLeftOutKey = "left_out"
)

// causeField is the field of every cause: the name of the object in expressions.
// kubectl prints causes as "field: message", and nothing else for the reason Invalid.
const causeField = "object"

// answer gathers what the policies of one call decide.
type answer struct {
	denials        []denial
	denied         int // of which denials holds the first
	warnings       []string
	failures       []validating.ValidationFailureValue
	warned, failed int
	annotations    map[string]string
	warningText    int // bytes
	annotationText int // bytes
	valuesLeftOut  int // of audit annotations
	skipped        []string
}

type denial struct {
	message string
	reason  metav1.StatusReason
	code    int32 // a plugin's; 0: that of the reason
}

// add takes in one policy's results and says in one word what they come to.
// Each binding's actions are applied to each decision, as the API server does.
func (a *answer) add(p *Compiled, results []result) Decision {
	var acted actions
	evaluated, failed := false, false
	annotations := annotationCollector{}
	for _, r := range results {
		if r.err != nil {
			failed = true
			a.denyMisconfigured(p, r.binding, r.binding.misconfigured(r.err).Error(), metav1.StatusReasonInvalid)
			continue
		}
		evaluated = evaluated || len(r.decisions)+len(r.annotations) > 0
		failed = failed || slices.ContainsFunc(r.decisions, isError)
		acted |= a.applyDecisions(p, r)
		a.warnOnce(r.warnings...)
		if a.annotate(annotations, r) {
			failed = true
		}
	}
	a.publish(p.name, annotations)
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

// denyMisconfigured denies for a reason that lies in the policy's configuration. Whatever
// the binding's actions are, failurePolicy alone decides, as in the API server.
func (a *answer) denyMisconfigured(p *Compiled, b *binding, message string, reason metav1.StatusReason) {
	if p.failurePolicy != admissionregistrationv1.Ignore {
		a.deny(denial{message: b.subject + " denied request: " + truncate.String(message, maxOneMessage), reason: reason})
	}
}

func (a *answer) applyDecisions(p *Compiled, r result) actions {
	var acted actions
	for i, d := range r.decisions {
		switch d.Action {
		case validating.ActionAdmit:
		case validating.ActionDeny:
			acted |= a.applyActions(p, r, i, d)
		default: // no release of the validator makes another
			acted |= acting
			a.deny(denial{message: fmt.Sprintf("%s denied request: internal error: unknown decision %q", r.binding.subject, d.Action)})
		}
	}
	return acted
}

// isError also holds for a decision that is neither admit nor deny.
func isError(d validating.PolicyDecision) bool {
	return d.Evaluation == validating.EvalError || (d.Action != validating.ActionAdmit && d.Action != validating.ActionDeny)
}

func (a *answer) applyActions(p *Compiled, r result, index int, d validating.PolicyDecision) actions {
	var acted actions
	b := r.binding
	message := truncate.String(d.Message, maxOneMessage)
	for _, action := range b.actions {
		switch action {
		case admissionregistrationv1.Deny:
			acted |= acting
			a.deny(denial{message: b.subject + " denied request: " + message + b.help, reason: d.Reason, code: r.code(index)})
		case admissionregistrationv1.Warn:
			acted |= warning
			a.warn("Validation failed for " + b.subject + ": " + message + b.help)
		case admissionregistrationv1.Audit:
			acted |= auditing
			a.fail(validating.ValidationFailureValue{Message: message, Policy: p.name, Binding: b.name, ExpressionIndex: index, ValidationActions: b.actions})
		}
	}
	return acted
}

// code is that of a decision, 0 where its reason says.
func (r result) code(index int) int32 {
	if index < len(r.codes) {
		return r.codes[index]
	}
	return 0
}

func (a *answer) deny(d denial) {
	a.denied++
	if len(a.denials) < maxDenials {
		a.denials = append(a.denials, d)
	}
}

func (a *answer) warn(message string) {
	a.warned++
	if len(a.warnings) < maxWarnings && a.warningText+len(message) <= maxWarningText {
		a.warnings = append(a.warnings, message)
		a.warningText += len(message)
	}
}

// warnOnce leaves out what another binding has had said.
func (a *answer) warnOnce(messages ...string) {
	for _, text := range messages {
		if !slices.Contains(a.warnings, text) {
			a.warn(text)
		}
	}
}

func (a *answer) fail(f validating.ValidationFailureValue) {
	a.failed++
	if len(a.failures) < maxFailures {
		a.failures = append(a.failures, f)
	}
}

// response is the answer to send.
func (a *answer) response(r *request) *admissionv1.AdmissionResponse {
	out := &admissionv1.AdmissionResponse{UID: r.raw.UID, Allowed: a.denied == 0}
	failures := a.annotateFailures()
	a.annotateOmissions(a.failed - failures)
	a.addDetails(out)
	if a.denied > 0 {
		out.Result = a.status(r.versioned)
	}
	return out
}

// addDetails puts what client and audit log are told beside the decision into a
// response.
func (a *answer) addDetails(out *admissionv1.AdmissionResponse) {
	out.Warnings = a.warnings
	if more := a.warned - len(a.warnings); more > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d more warnings were left out", more))
	}
	a.annotateSkipped()
	out.AuditAnnotations = a.annotations
}

// annotateFailures writes the list of validation failures, as the API server does,
// as far as there is room for it, and returns how many are in it.
func (a *answer) annotateFailures() int {
	var list []json.RawMessage
	for i := range a.failures {
		data, err := json.Marshal(a.failures[i])
		if err != nil || a.annotationText+len(data)+len(",") > maxAnnotations {
			break
		}
		a.annotationText += len(data) + len(",")
		list = append(list, data)
	}
	if len(list) == 0 {
		return 0
	}
	value, err := json.Marshal(list)
	if err != nil { // strings and ints only: it cannot fail
		return 0
	}
	a.setAnnotation(auditFailureKey, string(value))
	return len(list)
}

// annotateOmissions says what the audit log lacks.
func (a *answer) annotateOmissions(failures int) {
	if failures > 0 || a.valuesLeftOut > 0 {
		a.setAnnotation(auditLeftOutKey, fmt.Sprintf("%d validation failures and %d values of audit annotations", failures, a.valuesLeftOut))
	}
}

// status is the API server's own for a denial by a policy, but for the message:
// it names every denial, not the first alone. Code and reason are the first's.
func (a *answer) status(attr admission.Attributes) *metav1.Status {
	first := a.denials[0]
	var forbidden *apierrors.StatusError
	status := metav1.Status{Status: metav1.StatusFailure, Details: &metav1.StatusDetails{}}
	if errors.As(admission.NewForbidden(attr, errors.New(first.message)), &forbidden) && forbidden.ErrStatus.Details != nil {
		status = forbidden.ErrStatus
	}
	status.Reason = first.reason
	if status.Reason == "" {
		status.Reason = metav1.StatusReasonInvalid
	}
	status.Code = cmp.Or(first.code, codeOf(status.Reason))
	shown := a.shownDenials()
	lines := make([]string, len(shown))
	for i, d := range shown {
		lines[i] = d.message
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Field: causeField, Message: d.message})
	}
	if more := a.denied - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("(%d more denials were left out)", more))
	}
	// One to a line; the API server begins the first.
	status.Message = strings.Join(lines, "\n")
	return &status
}

// shownDenials are the denials that fit into one message.
func (a *answer) shownDenials() []denial {
	size := 0
	for i, d := range a.denials {
		if size += len(d.message); i > 0 && size > maxMessage {
			return a.denials[:i]
		}
	}
	return a.denials
}

// codeOf is the API server's mapping from a policy's reason to an HTTP status
// code; any other reason is 422, Unprocessable Entity.
func codeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonUnauthorized:
		return 401
	case metav1.StatusReasonForbidden:
		return 403
	case metav1.StatusReasonRequestEntityTooLarge:
		return 413
	default:
		return 422
	}
}

// actions are the effects that a policy had on a request, as a set.
type actions uint8

const (
	acting actions = 1 << iota
	warning
	auditing
)

func (a actions) decision() Decision {
	switch {
	case a&acting != 0:
		return DecisionDeny
	case a&warning != 0:
		return DecisionWarn
	case a&auditing != 0:
		return DecisionAudit
	default:
		return DecisionAllow
	}
}
