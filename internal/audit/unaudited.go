package audit

import (
	"fmt"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

// Unaudited returns why a policy, compiled or not, is not evaluated on stored objects; "" if it is.
func Unaudited(spec *v1alpha1.WebhookPolicySpec, compiled *policy.Compiled) string {
	switch {
	case !spec.Audits():
		return "spec.audit.enabled is false"
	case compiled == nil:
		return "the policy is not accepted"
	case compiled.Unauditable() != "":
		return "the policy cannot be evaluated on stored objects: " + compiled.Unauditable()
	}
	return ""
}

// TooManyResources says that a policy matches more resources than Resources returns.
func TooManyResources() string {
	return fmt.Sprintf("the rules match more than %d resources: only the first by name are evaluated", MaxResources)
}
