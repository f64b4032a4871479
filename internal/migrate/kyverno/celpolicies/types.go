// Package celpolicies converts the policies of Kyverno that are written in CEL: those of
// the group policies.kyverno.io.
package celpolicies

import (
	"encoding/json"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// group is the API group.
const group = "policies.kyverno.io"

// The kinds that are converted.
const (
	kindValidating           = "ValidatingPolicy"
	kindNamespacedValidating = "NamespacedValidatingPolicy"
	kindMutating             = "MutatingPolicy"
	kindNamespacedMutating   = "NamespacedMutatingPolicy"
	kindException            = "PolicyException"
)

// commonSpec are the fields of both kinds of policies, in the versions v1alpha1, v1beta1 and
// v1.
type commonSpec struct {
	MatchConstraints     *admissionregistrationv1.MatchResources    `json:"matchConstraints,omitempty"`
	MatchConditions      []admissionregistrationv1.MatchCondition   `json:"matchConditions,omitempty"`
	Variables            []admissionregistrationv1.Variable         `json:"variables,omitempty"`
	FailurePolicy        *admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
	Autogen              *autogenSettings                           `json:"autogen,omitempty"`
	WebhookConfiguration *struct {
		TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	} `json:"webhookConfiguration,omitempty"`
	Evaluation *evaluationSettings `json:"evaluation,omitempty"`
}

type autogenSettings struct {
	PodControllers *struct {
		Controllers []string `json:"controllers,omitempty"`
	} `json:"podControllers,omitempty"`
	// What Kyverno writes for its own use.
	ValidatingAdmissionPolicy *optionalSwitch `json:"validatingAdmissionPolicy,omitempty"`
	MutatingAdmissionPolicy   *optionalSwitch `json:"mutatingAdmissionPolicy,omitempty"`
}

type optionalSwitch struct {
	Enabled *bool `json:"enabled,omitempty"`
}

// isOn reports the value, or the default.
func (e *optionalSwitch) isOn(byDefault bool) bool {
	if e == nil || e.Enabled == nil {
		return byDefault
	}
	return *e.Enabled
}

type evaluationSettings struct {
	Mode           string          `json:"mode,omitempty"`
	Admission      *optionalSwitch `json:"admission,omitempty"`
	Background     *optionalSwitch `json:"background,omitempty"`
	MutateExisting *optionalSwitch `json:"mutateExisting,omitempty"`
}

// validatingPolicy is a ValidatingPolicy or a NamespacedValidatingPolicy.
type validatingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		commonSpec
		Validations       []admissionregistrationv1.Validation       `json:"validations,omitempty"`
		AuditAnnotations  []admissionregistrationv1.AuditAnnotation  `json:"auditAnnotations,omitempty"`
		ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`
	} `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// mutatingPolicy is a MutatingPolicy or a NamespacedMutatingPolicy.
type mutatingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		commonSpec
		Mutations              []admissionregistrationv1.Mutation             `json:"mutations,omitempty"`
		ReinvocationPolicy     admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`
		TargetMatchConstraints json.RawMessage                                `json:"targetMatchConstraints,omitempty"`
	} `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// policyException is a PolicyException.
type policyException struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		PolicyRefs []struct {
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"policyRefs"`
		MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
		Images          []string                                 `json:"images,omitempty"`
		AllowedValues   []string                                 `json:"allowedValues,omitempty"`
		ExpiresAt       *metav1.Time                             `json:"expiresAt,omitempty"`
		// What has no effect on decisions.
		ReportResult   string            `json:"reportResult,omitempty"`
		Properties     map[string]string `json:"properties,omitempty"`
		EvaluationMode string            `json:"evaluationMode,omitempty"`
	} `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}
