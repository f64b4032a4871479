package exceptions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// The reasons for which an exception has no effect.
const (
	ReasonPolicyNotFound     = "PolicyNotFound"
	ReasonNotAllowed         = "NoExceptionsAllowed"
	ReasonPolicyHasBackend   = "PolicyHasBackend"
	ReasonNoExpirationTime   = "NoExpirationTime"
	ReasonExceedsMaxDuration = "ExceedsMaxDuration"
	ReasonExpired            = "Expired"
	ReasonDeleting           = "Deleting"
	ReasonUnknownValidation  = "UnknownValidation"
	ReasonInvalidSelector    = "InvalidSelector"
	ReasonInvalidCondition   = "InvalidCondition"
)

// Inactive returns the reason for which an exception has no effect at a time in a policy that
// permits exceptions; "" if it has one. It neither compiles nor allocates.
func (e *Entry) Inactive(permitted *v1alpha1.Exceptions, now time.Time) string {
	if e.Deleting { // finalizers, which need no permission to use exceptions, must not prolong it
		return ReasonDeleting
	}
	switch longest := permitted.MaxDurationSeconds; {
	case longest == nil:
	case !e.ends:
		return ReasonNoExpirationTime
	case e.Expires.Sub(e.created(now)) > time.Duration(*longest)*time.Second:
		return ReasonExceedsMaxDuration
	}
	if e.ends && !now.Before(e.Expires) {
		return ReasonExpired
	}
	if e.invalid != nil {
		return ReasonInvalidSelector
	}
	return ""
}

func (e *Entry) created(now time.Time) time.Time {
	if e.Created.IsZero() {
		return now
	}
	return e.Created
}

// State returns the reason for which an exception has no effect at a time, and what to do about
// it; "" if it has one. A nil spec is that of a policy that does not exist. Without a compiler,
// the condition is not checked.
func (e *Entry) State(spec *v1alpha1.WebhookPolicySpec, now time.Time, compiler Compiler) (reason, message string) {
	switch {
	case spec == nil:
		return ReasonPolicyNotFound, fmt.Sprintf("the policy %q does not exist at spec.policyName: "+
			"create it, or create an exception for another one", e.Policy)
	case spec.Exceptions == nil:
		return ReasonNotAllowed, fmt.Sprintf("the policy %q has no exceptions: its author has to set spec.exceptions", e.Policy)
	case spec.Backend != nil:
		return ReasonPolicyHasBackend, fmt.Sprintf("the API server calls the backend of the policy %q, "+
			"which exceptions do not change: exclude the objects with its matchConditions", e.Policy)
	}
	if reason := e.Inactive(spec.Exceptions, now); reason != "" {
		return reason, e.inactiveMessage(reason, spec.Exceptions)
	}
	if unknown := e.UnknownValidations(spec); !e.all && len(unknown) == len(e.validations) {
		return ReasonUnknownValidation, fmt.Sprintf("the policy %q has no validation %s at spec.validations: "+
			"name its validations, or write \"*\" for all", e.Policy, quoted(unknown))
	}
	if e.Condition != "" && compiler != nil {
		if err := e.Program(compiler).Result.Error; err != nil {
			return ReasonInvalidCondition, fmt.Sprintf("the expression is not valid at spec.condition: %s", err.Detail)
		}
	}
	return "", ""
}

// Field is the path of the field of an exception that a reason is about.
func Field(reason string) string {
	switch reason {
	case ReasonNoExpirationTime, ReasonExceedsMaxDuration, ReasonExpired:
		return "spec.expirationTime"
	case ReasonUnknownValidation:
		return "spec.validations"
	case ReasonInvalidSelector:
		return "spec.match"
	case ReasonInvalidCondition:
		return "spec.condition"
	case ReasonDeleting:
		return "metadata.finalizers"
	}
	return "spec.policyName"
}

func (e *Entry) inactiveMessage(reason string, permitted *v1alpha1.Exceptions) string {
	switch reason {
	case ReasonNoExpirationTime:
		return fmt.Sprintf("the policy %q needs an end at spec.expirationTime, at most %s after the creation",
			e.Policy, time.Duration(*permitted.MaxDurationSeconds)*time.Second)
	case ReasonExceedsMaxDuration:
		return fmt.Sprintf("the exception lasts longer at spec.expirationTime than the %s of the policy %q, "+
			"which count from the creation: create another exception",
			time.Duration(*permitted.MaxDurationSeconds)*time.Second, e.Policy)
	case ReasonDeleting:
		return "the exception is being deleted: its finalizers at metadata.finalizers keep the object, without an effect"
	case ReasonInvalidSelector:
		return fmt.Sprintf("a selector is not valid at %s", e.invalid)
	}
	return fmt.Sprintf("the exception ended at %s: delete it, or create another one", e.Expires.UTC().Format(time.RFC3339))
}

// UnknownValidations returns the validations that the policy does not have.
func (e *Entry) UnknownValidations(spec *v1alpha1.WebhookPolicySpec) (out []string) {
	for _, name := range e.validations {
		if name != v1alpha1.AllValidations && !slices.ContainsFunc(spec.Validations, func(v v1alpha1.Validation) bool {
			return v.Name == name
		}) {
			out = append(out, name)
		}
	}
	return out
}

func quoted(names []string) string { return `"` + strings.Join(names, `" or "`) + `"` }
