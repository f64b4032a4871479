package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AllValidations in the validations of an exception stands for all validations of the policy,
// also those without a name, and for its mutations and its plugin.
const AllValidations = "*"

// Exceptions permits exceptions from a policy. Without it, a policy has none.
type Exceptions struct {
	// maxDurationSeconds limits how long an exception lasts, from its creation. With it, each
	// exception needs an expirationTime, and one that ends later is not active. Without it, an
	// exception may have no end. At most ten years.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=315360000
	MaxDurationSeconds *int64 `json:"maxDurationSeconds,omitempty"`
}

// WebhookPolicyException lets objects of its namespace pass some validations of one policy,
// until it ends. It changes nothing for other objects, validations and policies. To create
// it, or to change its spec, a user needs the verb use on webhookpolicies/exceptions with the
// name of the policy, in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=whpe
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policyName`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expirationTime`,description="The end; empty without one."
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`,description="In effect."
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`,description="Requests that passed because of the exception."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="State",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Active")].reason`,description="Why."
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Active")].message`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
type WebhookPolicyException struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what passes, why, and for how long.
	// +required
	Spec WebhookPolicyExceptionSpec `json:"spec"`

	// status is the last observed state of the exception. Ostiary writes it. Until then, its observedGeneration is -1, so that tools that use
	// kstatus wait: for them, an object without a status is ready.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status WebhookPolicyExceptionStatus `json:"status,omitempty"`
}

// ClusterWebhookPolicyException is an exception for cluster-scoped objects. To create it, or
// to change its spec, a user needs the verb use on webhookpolicies/exceptions with the name of
// the policy, in all namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cwhpe
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policyName`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expirationTime`,description="The end; empty without one."
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`,description="In effect."
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`,description="Requests that passed because of the exception."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="State",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Active")].reason`,description="Why."
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Active")].message`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
type ClusterWebhookPolicyException struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what passes, why, and for how long.
	// +required
	Spec WebhookPolicyExceptionSpec `json:"spec"`

	// status is the last observed state of the exception. Ostiary writes it. Until then, its observedGeneration is -1, so that tools that use
	// kstatus wait: for them, an object without a status is ready.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status WebhookPolicyExceptionStatus `json:"status,omitempty"`
}

// WebhookPolicyExceptionSpec says what passes, why, and for how long.
type WebhookPolicyExceptionSpec struct {
	// policyName is the name of the WebhookPolicy. It cannot be changed. The policy has to
	// permit exceptions with spec.exceptions.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueForbidden,message="policyName cannot be changed: create another exception"
	PolicyName string `json:"policyName"`

	// validations are the names of the validations that objects may fail. "*" stands for all,
	// also those without a name, and for mutations and plugins. At most 100.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self == '*' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write the name of a validation, or '*' for all"
	Validations []string `json:"validations"`

	// match selects the objects. One entry is enough. At most 16.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Match []ExceptionMatch `json:"match"`

	// condition is a CEL expression over object and oldObject. The exception has no effect
	// where it is false or fails. It has neither request nor authorizer, so that the audit of
	// stored objects and admission agree. On DELETE, object is the object that is deleted.
	// Example: object.spec.replicas < 3
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Condition string `json:"condition,omitempty"`

	// reason says why the exception exists, for example with the number of a ticket.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.trim().size() > 0",reason=FieldValueRequired,message="write why the exception exists"
	Reason string `json:"reason"`

	// expirationTime is when the exception ends. It is required if the policy has
	// spec.exceptions.maxDurationSeconds, which counts from creationTimestamp.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
}

// ExceptionMatch selects objects by resource, name and labels. An object has to match all of
// its fields.
type ExceptionMatch struct {
	// group is the API group of resources, empty for the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`

	// resources are plural names, such as deployments, of the resources that the policy sees,
	// after the conversion of its matchConstraints. A subresource is named: pods/exec. At most 16.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9.-]+(/[a-zA-Z0-9.-]+)?$')",reason=FieldValueInvalid,message="write a plural name, such as deployments or pods/exec, without wildcards"
	Resources []string `json:"resources"`

	// names are names of objects. A name can have one "*", which stands for any text: web-*
	// is also web-evil. Without names, an entry selects objects of any name; an object that is
	// to get its name from generateName has none when it is mutated. At most 64.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('[*].*[*]')",reason=FieldValueInvalid,message="write at most one '*'"
	Names []string `json:"names,omitempty"`

	// objectSelector selects objects by their labels: those of the new object, or of the
	// deleted one. Unlike in matchConstraints, the labels of the old object do not count.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// ConditionActive is the type of the condition of an exception.
const ConditionActive = "Active"

// WebhookPolicyExceptionStatus is the last observed state of an exception.
type WebhookPolicyExceptionStatus struct {
	// observedGeneration is the metadata.generation that this status describes, and -1 until Ostiary has written it.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions has Active: every replica applies the exception, or why it has no effect.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=4
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// used is the number of requests that passed because of the exception. Replicas count them
	// in memory, so those of a replica that ends abruptly can be missing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Used int64 `json:"used,omitempty"`

	// lastUsedTime is about when a request passed because of the exception.
	// +optional
	LastUsedTime *metav1.Time `json:"lastUsedTime,omitempty"`
}

// Exception is an exception of either kind.
//
// +kubebuilder:object:generate=false
type Exception interface {
	metav1.Object
	runtime.Object
	// GetSpec returns the spec, which the caller must not change.
	GetSpec() *WebhookPolicyExceptionSpec
	// GetStatus returns the status, which the caller may change.
	GetStatus() *WebhookPolicyExceptionStatus
}

// GetSpec implements Exception.
func (e *WebhookPolicyException) GetSpec() *WebhookPolicyExceptionSpec { return &e.Spec }

// GetStatus implements Exception.
func (e *WebhookPolicyException) GetStatus() *WebhookPolicyExceptionStatus { return &e.Status }

// GetSpec implements Exception.
func (e *ClusterWebhookPolicyException) GetSpec() *WebhookPolicyExceptionSpec { return &e.Spec }

// GetStatus implements Exception.
func (e *ClusterWebhookPolicyException) GetStatus() *WebhookPolicyExceptionStatus { return &e.Status }

// WebhookPolicyExceptionList is a list of exceptions.
//
// +kubebuilder:object:root=true
type WebhookPolicyExceptionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WebhookPolicyException `json:"items"`
}

// ClusterWebhookPolicyExceptionList is a list of exceptions for cluster-scoped objects.
//
// +kubebuilder:object:root=true
type ClusterWebhookPolicyExceptionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterWebhookPolicyException `json:"items"`
}
