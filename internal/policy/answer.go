package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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

// Bounds of one response. Everything beyond them is counted and not sent.
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
	// auditRatchetedKey is the key of a policy's annotation that lists validations that a
	// request failed as the stored object does.
	auditRatchetedKey = "ratcheted"
	// ratchetedText follows the name of the policy in the warning about them.
	ratchetedText = " allowed request, because the stored object fails it too: "
)

// causeField is the field of causes: the name of the object in expressions, which for a
// pod template is that of the path. kubectl prints causes as "field: message", and nothing
// else for the reason Invalid.
const causeField = "object"

// answer collects the decisions of the policies of one call.
type answer struct {
	denials        []denial
	denied         int // all; denials holds the first
	warnings       []string
	failures       []validationFailure
	warned, failed int
	annotations    map[string]string
	warningText    int // bytes
	annotationText int // bytes
	valuesLeftOut  int // of audit annotations
	skipped        []string
}

type denial struct {
	message    string
	reason     metav1.StatusReason
	code       int32  // of a plugin; 0 means the code of the reason
	validation string // the name of the validation; empty without one
	template   string // the path of the pod template; empty for the object itself
}

// validationFailure is the native audit value with the name of the validation and the path
// of the pod template.
type validationFailure struct {
	validating.ValidationFailureValue `json:",inline"`
	Validation                        string `json:"validation,omitempty"`
	Template                          string `json:"template,omitempty"`
}

// add adds the results of one policy and returns its decision. It applies the actions of
// each binding to each decision, as the API server does.
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
		acted |= a.applyDecisions(p, r, annotations)
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

// denyMisconfigured denies a request because of the configuration of a policy.
// failurePolicy alone decides, not the actions of the binding, as in the API server.
func (a *answer) denyMisconfigured(p *Compiled, b *binding, message string, reason metav1.StatusReason) {
	if p.failurePolicy != admissionregistrationv1.Ignore {
		a.deny(denial{message: b.subject + " denied request: " + truncate.String(message, maxOneMessage), reason: reason})
	}
}

func (a *answer) applyDecisions(p *Compiled, r result, into annotationCollector) actions {
	var acted actions
	for i, d := range r.decisions {
		switch d.Action {
		case validating.ActionAdmit:
			if label := r.validation(i).ratcheted; label != "" {
				acted |= ratcheting
				a.applyRatchet(r, label, d, into)
			}
		case validating.ActionDeny:
			acted |= a.applyActions(p, r, i, d)
		default: // no release of the validator returns another action
			acted |= acting
			a.deny(denial{message: fmt.Sprintf("%s denied request: internal error: unknown decision %q", r.binding.subject, d.Action)})
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
	message := r.prefix(name) + truncate.String(d.Message, maxOneMessage)
	for _, action := range r.actions() {
		switch action {
		case admissionregistrationv1.Deny:
			acted |= acting
			a.deny(denial{message: b.subject + " denied request: " + message + b.help, reason: d.Reason, code: r.code(index), validation: name, template: r.template})
		case admissionregistrationv1.Warn:
			acted |= warning
			a.warn("Validation failed for " + b.subject + ": " + message + b.help)
		case admissionregistrationv1.Audit:
			acted |= auditing
			a.fail(validationFailure{Validation: name, Template: r.template, ValidationFailureValue: validating.ValidationFailureValue{
				Message: message, Policy: p.name, Binding: b.name, ExpressionIndex: index, ValidationActions: r.actions(),
			}})
		}
	}
	return acted
}

// applyRatchet lets a request pass that fails a validation as the stored object does. The
// client gets a warning if the binding denies or warns.
func (a *answer) applyRatchet(r result, label string, d validating.PolicyDecision, into annotationCollector) {
	prefix := r.prefix(label)
	if slices.ContainsFunc(r.actions(), func(action admissionregistrationv1.ValidationAction) bool {
		return action != admissionregistrationv1.Audit
	}) {
		a.warnOnce(r.binding.subject + ratchetedText + prefix + truncate.String(d.Message, maxOneMessage) + r.binding.help)
	}
	a.collect(into, validating.PolicyAuditAnnotation{Key: auditRatchetedKey, Value: strings.TrimSuffix(prefix, ": ")})
}

// validation returns the result of the validation of a decision besides it.
func (r result) validation(index int) validationResult {
	if index < len(r.validations) {
		return r.validations[index]
	}
	return validationResult{}
}

// actions returns the actions for decisions: for a pod template, they can differ from those
// of the binding.
func (r result) actions() []admissionregistrationv1.ValidationAction {
	if r.template != "" && len(r.templateActions) > 0 {
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

// warnOnce adds warnings, except those that another binding has added.
func (a *answer) warnOnce(messages ...string) {
	for _, text := range messages {
		if !slices.Contains(a.warnings, text) {
			a.warn(text)
		}
	}
}

func (a *answer) fail(f validationFailure) {
	a.failed++
	if len(a.failures) < maxFailures {
		a.failures = append(a.failures, f)
	}
}

// response returns the response to the request.
func (a *answer) response(r *request) *admissionv1.AdmissionResponse {
	out := &admissionv1.AdmissionResponse{UID: r.raw.UID, Allowed: a.denied == 0}
	failures := a.annotateFailures()
	a.annotateOmissions(a.failed - failures)
	a.addDetails(out)
	if a.denied > 0 {
		out.Result = a.status(r.whole.versioned)
	}
	return out
}

// addDetails adds warnings and audit annotations to a response.
func (a *answer) addDetails(out *admissionv1.AdmissionResponse) {
	out.Warnings = a.warnings
	if more := a.warned - len(a.warnings); more > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d more warnings were left out", more))
	}
	a.annotateSkipped()
	out.AuditAnnotations = a.annotations
}

// annotateFailures adds the validation failures as the API server does, as far as there
// is room, and returns their number.
func (a *answer) annotateFailures() int {
	var list [][]byte
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
	a.setAnnotation(auditFailureKey, "["+string(bytes.Join(list, []byte(",")))+"]")
	return len(list)
}

// annotateOmissions adds the number of omitted audit annotations.
func (a *answer) annotateOmissions(failures int) {
	if failures > 0 || a.valuesLeftOut > 0 {
		a.setAnnotation(auditLeftOutKey, fmt.Sprintf("%d validation failures and %d values of audit annotations", failures, a.valuesLeftOut))
	}
}

// status returns the status of a denial as the API server does, but its message contains
// every denial. Code and reason are those of the first.
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
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(d.validation), Field: cmp.Or(d.template, causeField), Message: d.message})
	}
	if more := a.denied - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("(%d more denials were left out)", more))
	}
	// One denial per line. The API server writes the beginning of the first line.
	status.Message = strings.Join(lines, "\n")
	return &status
}

// shownDenials returns the denials that fit into one message.
func (a *answer) shownDenials() []denial {
	size := 0
	for i, d := range a.denials {
		if size += len(d.message); i > 0 && size > maxMessage {
			return a.denials[:i]
		}
	}
	return a.denials
}

// codeOf returns the HTTP status code of a reason, as the API server does: 422 for any
// unknown reason.
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
	ratcheting
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
	default:
		return DecisionAllow
	}
}

const (
	maxAnnotationValue = 10 << 10 // bytes, as the API server's own
	maxAnnotationKey   = 63       // bytes, a qualified name's part
	keyHash            = 10       // hexadecimal digits
	separator          = ", "     // the API server's, between values of one key
)

// annotationCollector holds the values of one policy's audit annotations by key, from all
// bindings and params, each value once.
type annotationCollector map[string][]string

// annotate adds the audit annotations of one evaluation and reports whether one of them
// failed. A failure denies the request, with any action of the binding.
func (a *answer) annotate(into annotationCollector, r result) (failed bool) {
	for _, x := range r.annotations {
		switch x.Action {
		case validating.AuditAnnotationActionPublish:
			a.collect(into, x)
		case validating.AuditAnnotationActionError:
			failed = true
			a.deny(denial{message: r.binding.subject + " denied request: " + truncate.String(x.Error, maxOneMessage)})
		}
	}
	return failed
}

// collect adds a value that is new, if there is room for it.
func (a *answer) collect(into annotationCollector, x validating.PolicyAuditAnnotation) {
	value := x.Value
	if len(value) > maxAnnotationValue {
		value = strings.ToValidUTF8(value[:maxAnnotationValue], "")
	}
	if slices.Contains(into[x.Key], value) {
		return
	}
	size := len(value) + len(separator)
	if a.annotationText+size > maxAnnotations-keptForFailures {
		a.valuesLeftOut++
		return
	}
	a.annotationText += size
	into[x.Key] = append(into[x.Key], value)
}

// publish joins the values of each key as the API server does.
func (a *answer) publish(policy string, collected annotationCollector) {
	for key, values := range collected {
		a.setAnnotation(annotationKey(policy, key), strings.Join(values, separator))
	}
}

func (a *answer) setAnnotation(key, value string) {
	if a.annotations == nil {
		a.annotations = map[string]string{}
	}
	a.annotations[key] = value
}

// annotationKey returns the key of a policy's annotation. The API server puts the name of
// the webhook and a slash before it and drops keys that are not the name part of a
// qualified name. The native key has a slash between policy and key, so it is not such a
// name part. A key that is too long is cut and gets a hash.
func annotationKey(policy, key string) string {
	name := policy + "." + key
	if len(name) <= maxAnnotationKey {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxAnnotationKey-keyHash-1] + "-" + hex.EncodeToString(sum[:])[:keyHash]
}
