package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MutationAction is what happens with the result of mutations.
type MutationAction string

const (
	// MutationActionApply changes the object of the request.
	MutationActionApply MutationAction = "Apply"
	// MutationActionPreview records what would change, and leaves the object as it is.
	MutationActionPreview MutationAction = "Preview"
)

// RolloutEvidence is what ends a step of a rollout.
type RolloutEvidence string

const (
	// RolloutEvidenceAll counts stored objects and requests.
	RolloutEvidenceAll RolloutEvidence = "All"
	// RolloutEvidenceObjects counts only stored objects.
	RolloutEvidenceObjects RolloutEvidence = "Objects"
	// RolloutEvidenceRequests counts only requests.
	RolloutEvidenceRequests RolloutEvidence = "Requests"
)

// RolloutOnChange says what a change of the policy means for a rollout that has ended.
type RolloutOnChange string

const (
	// RolloutOnChangeKeep keeps the final action.
	RolloutOnChangeKeep RolloutOnChange = "Keep"
	// RolloutOnChangeRestart begins with the first step again.
	RolloutOnChangeRestart RolloutOnChange = "Restart"
)

// Rollout replaces the actions of a binding one after the other. A step ends when its time has
// passed and few enough objects and requests violate the policy.
type Rollout struct {
	// steps are the actions before the final one, in order. The first one has no selector. At
	// most 10.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="!has(self[0].namespaceSelector)",reason=FieldValueForbidden,message="remove namespaceSelector from the first step: it applies wherever no later step does"
	Steps []RolloutStep `json:"steps"`

	// final is the action after the last step.
	// +required
	Final RolloutFinal `json:"final"`

	// evidence says what is counted: All, Objects (violations of stored objects) or Requests
	// (owners or objects whose requests violate the policy). Default All.
	// +optional
	// +kubebuilder:validation:Enum=All;Objects;Requests
	Evidence RolloutEvidence `json:"evidence,omitempty"`

	// onChange says what a change of the policy means after the final action has been reached:
	// Keep it, or Restart with the first step. Before, a change that can alter decisions begins the
	// step in effect again. Default Keep.
	// +optional
	// +kubebuilder:validation:Enum=Keep;Restart
	OnChange RolloutOnChange `json:"onChange,omitempty"`
}

// RolloutStep is an action with the condition for its end.
//
// +kubebuilder:validation:XValidation:rule="has(self.validationActions) || has(self.mutationAction)",reason=FieldValueRequired,message="set validationActions or mutationAction"
// +kubebuilder:validation:XValidation:rule="has(self.namespaceSelector) || !has(self.validationActions) || !('Deny' in self.validationActions)",fieldPath=".validationActions",reason=FieldValueForbidden,message="remove Deny, or add a namespaceSelector: before the final action, a step denies only in some namespaces"
type RolloutStep struct {
	// name of the step, unique in its rollout.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write name with lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name"`

	// validationActions are those of the binding during this step. Deny is for the final action,
	// or for a step with a namespaceSelector.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Deny;Warn;Audit
	// +kubebuilder:validation:XValidation:rule="!('Deny' in self && 'Warn' in self)",reason=FieldValueInvalid,message="remove Warn: Deny already sends the message to the client"
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`

	// mutationAction is that of the binding during this step: Preview or Apply. Default Preview
	// if the policy has mutations.
	// +optional
	// +kubebuilder:validation:Enum=Apply;Preview
	MutationAction MutationAction `json:"mutationAction,omitempty"`

	// minDurationSeconds is how long the step lasts at least. At most one year.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	MinDurationSeconds int64 `json:"minDurationSeconds"`

	// maxViolations is the number of violations up to which the step ends. Without it, the number
	// does not matter. With evidence All it applies to objects and to requests separately.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxViolations *int64 `json:"maxViolations,omitempty"`

	// namespaceSelector selects the namespaces of the step. In others, the last earlier step that
	// selects them applies. Cluster-scoped objects have no labels of a namespace, so a step with a
	// selector does not apply to them.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// RolloutFinal is the action after the last step.
//
// +kubebuilder:validation:XValidation:rule="has(self.validationActions) || has(self.mutationAction)",reason=FieldValueRequired,message="set validationActions or mutationAction"
type RolloutFinal struct {
	// validationActions are those of the binding after the last step.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Deny;Warn;Audit
	// +kubebuilder:validation:XValidation:rule="!('Deny' in self && 'Warn' in self)",reason=FieldValueInvalid,message="remove Warn: Deny already sends the message to the client"
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`

	// mutationAction is that of the binding after the last step. Default Apply.
	// +optional
	// +kubebuilder:validation:Enum=Apply;Preview
	MutationAction MutationAction `json:"mutationAction,omitempty"`
}

// BindingStatus is the state of the rollout of a binding. Replicas read the action in effect from
// it, so that none of them is ahead of what is recorded.
type BindingStatus struct {
	// name of the binding.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// step is the name of the step in effect; empty for the final action.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Step string `json:"step,omitempty"`

	// action is what the binding does now, with its position: "Warn 2/3", or "Deny".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Action string `json:"action,omitempty"`

	// final is true once the final action has been reached.
	// +optional
	Final bool `json:"final,omitempty"`

	// since is when the step in effect began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// next is the earliest time at which the step can end.
	// +optional
	Next *metav1.Time `json:"next,omitempty"`

	// token identifies this beginning of the step. An annotation of kubectl ostiary rollout names
	// it, so that a replay does nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token,omitempty"`

	// policyHash identifies what the step began with: the parts of the spec that can alter decisions.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PolicyHash string `json:"policyHash,omitempty"`

	// paused is true while kubectl ostiary rollout pause keeps the step in effect.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// heldBy says why the step has not ended although its time has passed, with the numbers.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	HeldBy string `json:"heldBy,omitempty"`

	// examples are violations that hold the step. At most 10 in all bindings.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=512
	Examples []string `json:"examples,omitempty"`
}

// Effective returns the actions of the step. Without validationActions it audits, and without a
// mutationAction it previews.
func (s *RolloutStep) Effective() ([]admissionregistrationv1.ValidationAction, MutationAction) {
	validation, mutation := s.ValidationActions, s.MutationAction
	if len(validation) == 0 {
		validation = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	}
	if mutation == "" {
		mutation = MutationActionPreview
	}
	return validation, mutation
}
