package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Validation is a CEL expression that must be true, and the message for requests for
// which it is false. It has the fields of a validation of ValidatingAdmissionPolicy, a
// name and ratchet.
//
// +kubebuilder:validation:XValidation:rule="self.expression.trim().size() > 0",fieldPath=".expression",reason=FieldValueRequired,message="write a CEL expression"
// +kubebuilder:validation:XValidation:rule="!has(self.message) || self.message.size() == 0 || self.message.trim().size() > 0",fieldPath=".message",reason=FieldValueInvalid,message="write what is wrong with the request, or remove message"
// +kubebuilder:validation:XValidation:rule="!has(self.message) || !self.message.trim().matches('[\\\\r\\\\n]')",fieldPath=".message",reason=FieldValueInvalid,message="write message on one line"
// +kubebuilder:validation:XValidation:rule="!has(self.messageExpression) || self.messageExpression.size() == 0 || self.messageExpression.trim().size() > 0",fieldPath=".messageExpression",reason=FieldValueInvalid,message="write a CEL expression that gives a string, or remove messageExpression"
type Validation struct {
	// name of the validation, unique in its policy. Messages, causes, metrics and
	// audit annotations contain it. Without a name, the metrics do not count the
	// validation separately.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write name with lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`

	// expression is CEL and must give a bool: true lets the request pass, false fails it.
	// It has object (null on DELETE), oldObject (null on CREATE), request (the attributes of
	// the request), namespaceObject (null for cluster-scoped objects), params (if the policy
	// has a paramKind), authorizer (permission checks of the user) and variables.
	// Example: object.spec.replicas <= 5
	// +required
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression"`

	// message for the client if the expression is false. One line. Without it and without
	// messageExpression, the message contains the expression.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// messageExpression is CEL and gives the message as a string. It has the variables of
	// expression except authorizer, and takes precedence over message. If it fails or is
	// empty, message is used. Example: "replicas are limited to 5, not " + string(object.spec.replicas)
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	MessageExpression string `json:"messageExpression,omitempty"`

	// reason sets the reason and the HTTP code of the denial: Unauthorized 401, Forbidden
	// 403, RequestEntityTooLarge 413, Invalid 422. The first validation that fails decides.
	// Default Invalid.
	// +optional
	// +kubebuilder:validation:Enum=Unauthorized;Forbidden;Invalid;RequestEntityTooLarge
	Reason *metav1.StatusReason `json:"reason,omitempty"`

	// ratchet lets an UPDATE pass with a warning if the policy applies to the stored object
	// and that fails this validation too. Default: ratchet of the policy.
	// +optional
	Ratchet *bool `json:"ratchet,omitempty"`
}

// Native returns the validation without the fields that ValidatingAdmissionPolicy does
// not have.
func (v *Validation) Native() admissionregistrationv1.Validation {
	return admissionregistrationv1.Validation{Expression: v.Expression, Message: v.Message, MessageExpression: v.MessageExpression, Reason: v.Reason}
}

// ValidationsOf returns the validations of a ValidatingAdmissionPolicy as those of a spec.
func ValidationsOf(native []admissionregistrationv1.Validation) []Validation {
	var out []Validation
	for _, v := range native {
		out = append(out, Validation{Expression: v.Expression, Message: v.Message, MessageExpression: v.MessageExpression, Reason: v.Reason})
	}
	return out
}

// NativeValidations returns the validations of the spec as those of a
// ValidatingAdmissionPolicy.
func (s *WebhookPolicySpec) NativeValidations() []admissionregistrationv1.Validation {
	var out []admissionregistrationv1.Validation
	for i := range s.Validations {
		out = append(out, s.Validations[i].Native())
	}
	return out
}

// Ratchets reports whether the validation of an index lets updates of objects pass that
// failed it before.
func (s *WebhookPolicySpec) Ratchets(validation int) bool {
	if own := s.Validations[validation].Ratchet; own != nil {
		return *own
	}
	return s.Ratchet
}

// ValidationNames returns the names of the validations that have one.
func (s *WebhookPolicySpec) ValidationNames() []string {
	var names []string
	for i := range s.Validations {
		if s.Validations[i].Name != "" {
			names = append(names, s.Validations[i].Name)
		}
	}
	return names
}
