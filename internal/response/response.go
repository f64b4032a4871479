// Package response builds the responses to admission requests from the denials, warnings
// and audit values of policies, as the API server does for its own policies. Every part
// has a bound, and what is beyond it is counted.
package response

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/objectpatch"
)

// Bounds of one response. Everything beyond them is counted and not sent.
const (
	maxDenials  = 64
	maxWarnings = 64
	maxFailures = 50 // as the API server's own maxValidationFailures
	// MaxMessage is the maximum of bytes of all denials together.
	MaxMessage = 16 << 10
	// MaxOneMessage is the maximum of bytes of a denial or warning, which the caller keeps.
	// A message expression may give 5 KiB.
	MaxOneMessage = 6 << 10
	// MaxWarningText and MaxAnnotations are the maxima of bytes of all warnings, and of all
	// audit annotations.
	MaxWarningText  = 64 << 10
	MaxAnnotations  = 64 << 10
	keptForFailures = 16 << 10 // bytes of them that values of policies leave to FailureKey
)

const (
	// FailureKey is the key of the annotation with the failures of validations, the native
	// one. Keys of policies contain a dot.
	FailureKey = "validation_failure"
	// LeftOutKey is the key of the annotation with the numbers of what is left out.
	LeftOutKey = "left_out"
	// Separator is between the values of one key, as in the API server.
	Separator = ", "
)

const (
	maxAnnotationValue = 10 << 10 // bytes, as the API server's own
	maxAnnotationKey   = 63       // bytes, a qualified name's part
	keyHash            = 10       // hexadecimal digits
)

// causeField is the field of causes: the name of the object in expressions, which for a
// pod template is that of the path. kubectl prints causes as "field: message", and nothing
// else for the reason Invalid.
const causeField = "object"

// Builder collects what the policies of one call decide. The zero value is ready for use.
type Builder struct {
	denials        []Denial
	denied         int // all; denials holds the first
	warnings       []string
	failures       []ValidationFailure
	warned, failed int
	annotations    map[string]string
	warningText    int // bytes
	annotationText int // bytes
	valuesLeftOut  int // of audit annotations
}

// Denial is one reason to deny the request.
type Denial struct {
	Message    string
	Reason     metav1.StatusReason
	Code       int32  // of a plugin; 0 means the code of the reason
	Validation string // the name of the validation; empty without one
	Template   string // the path of the pod template; empty for the object itself
}

// ValidationFailure is the native audit value with the name of the validation and the path
// of the pod template.
type ValidationFailure struct {
	validating.ValidationFailureValue `json:",inline"`
	Validation                        string `json:"validation,omitempty"`
	Template                          string `json:"template,omitempty"`
}

// Denied returns the number of denials.
func (b *Builder) Denied() int { return b.denied }

// KeepDenials keeps the first n denials and takes back the others.
func (b *Builder) KeepDenials(n int) {
	b.denied, b.denials = n, b.denials[:min(n, len(b.denials))]
}

// Deny adds a denial.
func (b *Builder) Deny(d Denial) {
	b.denied++
	if len(b.denials) < maxDenials {
		b.denials = append(b.denials, d)
	}
}

// Warn adds a warning.
func (b *Builder) Warn(message string) {
	b.warned++
	if len(b.warnings) < maxWarnings && b.warningText+len(message) <= MaxWarningText {
		b.warnings = append(b.warnings, message)
		b.warningText += len(message)
	}
}

// WarnOnce adds warnings, except those that another binding has added.
func (b *Builder) WarnOnce(messages ...string) {
	for _, text := range messages {
		if !slices.Contains(b.warnings, text) {
			b.Warn(text)
		}
	}
}

// AddFailure adds a failure to the audit annotations.
func (b *Builder) AddFailure(f ValidationFailure) {
	b.failed++
	if len(b.failures) < maxFailures {
		b.failures = append(b.failures, f)
	}
}

// Validated returns the response of the validating phase to a request.
func (b *Builder) Validated(uid types.UID, attr admission.Attributes) *admissionv1.AdmissionResponse {
	out := &admissionv1.AdmissionResponse{UID: uid, Allowed: b.denied == 0}
	failures := b.annotateFailures()
	b.annotateOmissions(b.failed - failures)
	b.addDetails(out)
	if b.denied > 0 {
		out.Result = b.status(attr)
	}
	return out
}

// Mutated returns the response of the mutating phase to a request, with the difference of
// the objects as a JSON patch. A denial has the code 403 for every reason, as in the native
// engine.
func (b *Builder) Mutated(
	uid types.UID,
	attr admission.Attributes,
	before, after runtime.Object,
) (*admissionv1.AdmissionResponse, error) {
	out := &admissionv1.AdmissionResponse{UID: uid, Allowed: b.denied == 0}
	var err error
	switch {
	case b.denied > 0:
		out.Result = b.status(attr)
		out.Result.Code = cmp.Or(b.denials[0].Code, codeOf(metav1.StatusReasonForbidden))
	case after != before:
		err = addPatch(out, before, after)
	}
	b.addDetails(out)
	return out, err
}

// addPatch adds the difference of two objects to a response.
func addPatch(out *admissionv1.AdmissionResponse, before, after runtime.Object) error {
	old, okOld := before.(*unstructured.Unstructured)
	changed, okChanged := after.(*unstructured.Unstructured)
	if !okOld || !okChanged {
		return fmt.Errorf("internal error: mutations made a %T of a %T", after, before)
	}
	operations := objectpatch.Diff(old.Object, changed.Object)
	if len(operations) == 0 {
		return nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	out.Patch, out.PatchType = patch, &kind
	return nil
}

// addDetails adds warnings and audit annotations to a response.
func (b *Builder) addDetails(out *admissionv1.AdmissionResponse) {
	out.Warnings = b.warnings
	if more := b.warned - len(b.warnings); more > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d more warnings were left out", more))
	}
	out.AuditAnnotations = b.annotations
}

// annotateFailures adds the validation failures as the API server does, as far as there
// is room, and returns their number.
func (b *Builder) annotateFailures() int {
	var list [][]byte
	for i := range b.failures {
		data, err := json.Marshal(b.failures[i])
		if err != nil || b.annotationText+len(data)+len(",") > MaxAnnotations {
			break
		}
		b.annotationText += len(data) + len(",")
		list = append(list, data)
	}
	if len(list) == 0 {
		return 0
	}
	b.SetAnnotation(FailureKey, "["+string(bytes.Join(list, []byte(",")))+"]")
	return len(list)
}

// annotateOmissions adds the number of omitted audit annotations.
func (b *Builder) annotateOmissions(failures int) {
	if failures > 0 || b.valuesLeftOut > 0 {
		const text = "%d validation failures and %d values of audit annotations"
		b.SetAnnotation(LeftOutKey, fmt.Sprintf(text, failures, b.valuesLeftOut))
	}
}

// status returns the status of a denial as the API server does, but its message contains
// every denial. Code and reason are those of the first.
func (b *Builder) status(attr admission.Attributes) *metav1.Status {
	first := b.denials[0]
	var forbidden *apierrors.StatusError
	status := metav1.Status{Status: metav1.StatusFailure, Details: &metav1.StatusDetails{}}
	if errors.As(admission.NewForbidden(attr, errors.New(first.Message)), &forbidden) && forbidden.ErrStatus.Details != nil {
		status = forbidden.ErrStatus
	}
	status.Reason = first.Reason
	if status.Reason == "" {
		status.Reason = metav1.StatusReasonInvalid
	}
	status.Code = cmp.Or(first.Code, codeOf(status.Reason))
	shown := b.shownDenials()
	lines := make([]string, len(shown))
	for i, d := range shown {
		lines[i] = d.Message
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{
			Type:    metav1.CauseType(d.Validation),
			Field:   cmp.Or(d.Template, causeField),
			Message: d.Message,
		})
	}
	if more := b.denied - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("(%d more denials were left out)", more))
	}
	// One denial per line. The API server writes the beginning of the first line.
	status.Message = strings.Join(lines, "\n")
	return &status
}

// shownDenials returns the denials that fit into one message.
func (b *Builder) shownDenials() []Denial {
	size := 0
	for i, d := range b.denials {
		if size += len(d.Message); i > 0 && size > MaxMessage {
			return b.denials[:i]
		}
	}
	return b.denials
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

// Annotations holds the values of one policy's audit annotations by key, from all bindings
// and params, each value once.
type Annotations map[string][]string

// Collect adds a value that is new, if there is room for it.
func (b *Builder) Collect(into Annotations, x validating.PolicyAuditAnnotation) {
	value := x.Value
	if len(value) > maxAnnotationValue {
		value = strings.ToValidUTF8(value[:maxAnnotationValue], "")
	}
	if slices.Contains(into[x.Key], value) {
		return
	}
	size := len(value) + len(Separator)
	if b.annotationText+size > MaxAnnotations-keptForFailures {
		b.valuesLeftOut++
		return
	}
	b.annotationText += size
	into[x.Key] = append(into[x.Key], value)
}

// Publish joins the values of each key as the API server does.
func (b *Builder) Publish(policy string, collected Annotations) {
	for key, values := range collected {
		b.SetAnnotation(annotationKey(policy, key), strings.Join(values, Separator))
	}
}

// SetAnnotation sets an audit annotation that is not one of a policy.
func (b *Builder) SetAnnotation(key, value string) {
	if b.annotations == nil {
		b.annotations = map[string]string{}
	}
	b.annotations[key] = value
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
