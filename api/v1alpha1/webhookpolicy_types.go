package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookPolicy decides API requests with CEL expressions. Ostiary registers
// webhooks for the matching requests, renews their certificates, and answers
// the calls. Its fields have the names and meaning of those of
// ValidatingAdmissionPolicy, MutatingAdmissionPolicy and their bindings.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=whp,categories=policy
// +kubebuilder:printcolumn:name="Actions",type=string,JSONPath=`.status.actions`,description="What the policy does: Mutate, Preview, Annotate, Backend, and the actions for requests that fail a validation."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True if the policy is enforced on every API server."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the policy is enforced or not."
// +kubebuilder:printcolumn:name="Violations",type=string,JSONPath=`.status.audit.summary`,description="Stored objects that fail a validation, as they are and if they were created again, or why their number is not known."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Failure-Policy",type=string,priority=1,JSONPath=`.status.failurePolicy`,description="What the API server does with a request if Ostiary does not answer."
// +kubebuilder:printcolumn:name="Webhook",type=string,priority=1,JSONPath=`.status.webhooks[*].configuration`,description="The generated webhook configurations of this policy."
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type WebhookPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired behavior of the policy.
	// +required
	Spec WebhookPolicySpec `json:"spec"`

	// status is the last observed state of the policy. Ostiary writes it. Until then, its observedGeneration is -1, so that tools that use
	// kstatus wait: for them, an object without a status is ready.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status WebhookPolicyStatus `json:"status,omitempty"`

	// UnknownFields are the paths of the fields of the stored spec that this version of the API
	// does not have. Only the decoder of Ostiary's cache sets them.
	UnknownFields []string `json:"-"`
}

// WebhookPolicySpec says which requests a policy matches, what they must satisfy,
// and what happens to those that do not.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ratchet) || !self.ratchet || (has(self.validations) && size(self.validations) > 0)",fieldPath=".ratchet",reason=FieldValueForbidden,message="remove ratchet: only validations have it"
// +kubebuilder:validation:XValidation:rule="has(self.paramKind) || !has(self.bindings) || self.bindings.all(b, !has(b.paramRef))",fieldPath=".paramKind",reason=FieldValueRequired,message="set paramKind: a binding has a paramRef"
// +kubebuilder:validation:XValidation:rule="!has(self.reinvocationPolicy) || has(self.plugin) || (has(self.mutations) && size(self.mutations) > 0) || (has(self.backend) && self.backend.type == 'Mutating')",fieldPath=".reinvocationPolicy",reason=FieldValueForbidden,message="remove reinvocationPolicy: only mutations are invoked again"
// +kubebuilder:validation:XValidation:rule="!has(self.order) || has(self.plugin) || (has(self.mutations) && size(self.mutations) > 0) || (has(self.backend) && self.backend.type == 'Mutating')",fieldPath=".order",reason=FieldValueForbidden,message="remove order: only mutations have an order"
type WebhookPolicySpec struct {
	// paramKind is the kind of the params of bindings. Ostiary watches objects of
	// this kind as the ServiceAccount ostiary-params, which needs the permissions
	// get, list and watch: create a ClusterRole with them and the label
	// admission.ostiary.dev/aggregate-to-params: "true".
	// +optional
	ParamKind *admissionregistrationv1.ParamKind `json:"paramKind,omitempty"`

	// matchConstraints selects requests by resource, operation, namespace labels
	// and object labels. A request must match all of them. With a plugin,
	// matchConstraints and its resourceRules are optional: they narrow the
	// requests of the plugin.
	// +optional
	MatchConstraints *admissionregistrationv1.MatchResources `json:"matchConstraints,omitempty"`

	// matchConditions are CEL expressions. If one is false, the policy skips the
	// request. They can use object, oldObject, request, params, authorizer and
	// variables. At most 64.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`

	// variables are named CEL expressions that later expressions of this policy
	// use as variables.<name>. Each is evaluated at most once per request, at its
	// first use, and may use those above it. At most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Variables []admissionregistrationv1.Variable `json:"variables,omitempty"`

	// lookups find stored objects by keys that they have in common with the object of the
	// request. Expressions read each as a list, lookups.<name>, ordered by namespace and name and
	// without the object of the request. More than 1,000 are an error. At most 10.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Lookups []Lookup `json:"lookups,omitempty"`

	// mutations change the object of the request, in order; each gets the result
	// of the one before. They run before validations. At most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Mutations []admissionregistrationv1.Mutation `json:"mutations,omitempty"`

	// validations are CEL expressions that must be true for the request to pass.
	// All of them are evaluated. At most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(v, !has(v.name) || self.exists_one(other, has(other.name) && other.name == v.name))",reason=FieldValueDuplicate,message="give each validation another name"
	Validations []Validation `json:"validations,omitempty"`

	// ratchet lets an UPDATE pass with a warning if the policy applies to the stored object
	// and that fails the same validation too, so that existing objects can still be changed.
	// It applies to all validations without a ratchet of their own. Default false.
	// +optional
	Ratchet bool `json:"ratchet,omitempty"`

	// auditAnnotations are CEL expressions whose values are written to the audit
	// log of the API server. At most 20.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=20
	AuditAnnotations []admissionregistrationv1.AuditAnnotation `json:"auditAnnotations,omitempty"`

	// bindings select where the policy is enforced, with which params, and the
	// actions for requests that fail a validation. Without bindings, there is one
	// with validationActions [Deny]. At most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Bindings []Binding `json:"bindings,omitempty"`

	// podTemplates evaluates the policy also on the pod templates of workloads, so that
	// their authors get the message. object is then the Pod of the template, and
	// a changed template is a new Pod: request.operation is CREATE, and oldObject is null.
	// The rest of request describes the workload. The rules must match Pods.
	// +optional
	PodTemplates *PodTemplates `json:"podTemplates,omitempty"`

	// plugin is an admission plugin that decides instead of expressions. It
	// excludes params, mutations, validations and auditAnnotations.
	// +optional
	Plugin *Plugin `json:"plugin,omitempty"`

	// backend is an external webhook that decides instead of expressions. Ostiary
	// registers it. The API server evaluates the matchConditions of such a policy,
	// without params and variables.
	// +optional
	Backend *Backend `json:"backend,omitempty"`

	// audit configures the evaluation of the validations on stored objects.
	// +optional
	Audit *Audit `json:"audit,omitempty"`

	// exceptions permits objects of the kinds WebhookPolicyException and
	// ClusterWebhookPolicyException to let objects pass that fail this policy. Without it, they
	// have no effect. A backend has no exceptions.
	// +optional
	Exceptions *Exceptions `json:"exceptions,omitempty"`

	// failurePolicy says what happens to a request that the policy cannot decide:
	// Ostiary or the backend does not answer, or an expression fails with an
	// error. Fail denies the request, Ignore lets it pass. Default Fail.
	// +optional
	// +kubebuilder:validation:Enum=Fail;Ignore
	FailurePolicy *admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`

	// timeoutSeconds is how long the API server waits for an answer before it
	// applies failurePolicy. 1 to 30 seconds, default 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=30
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// reinvocationPolicy says whether the mutations run again if another webhook or
	// policy changes the object after them: Never or IfNeeded. Default Never.
	// +optional
	// +kubebuilder:validation:Enum=Never;IfNeeded
	ReinvocationPolicy *admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`

	// order is the position of the mutations among those of other policies: lower
	// values run first. Policies with equal values that share a webhook run in the
	// order of their names; use different values if the order matters. 0 to 1000,
	// default 500.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Order *int32 `json:"order,omitempty"`

	// breakGlass lets users skip this policy if RBAC grants them the verb
	// breakglass on it. The policy then neither denies nor changes their requests;
	// an audit annotation records each request that it would have denied or
	// changed. While Ostiary does not answer, failurePolicy applies to them too. A
	// backend is not called for their requests, and nothing is recorded. Default
	// false.
	// +optional
	BreakGlass bool `json:"breakGlass,omitempty"`

	// allowCriticalResources permits resourceRules, or those of the plugin, to name
	// critical resources with their API group: Leases, Events, and the reviews of
	// authentication.k8s.io and authorization.k8s.io. Wildcards never match them.
	// With failurePolicy Fail, an outage of Ostiary denies them outside of the
	// exempt namespaces. WebhookPolicies and the resources of
	// admissionregistration.k8s.io can never be named. Default false.
	// +optional
	AllowCriticalResources bool `json:"allowCriticalResources,omitempty"`
}

// Binding selects where a policy is enforced, with which params, and the actions
// for requests that fail a validation.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rollout) || !has(self.validationActions)",fieldPath=".validationActions",reason=FieldValueForbidden,message="remove validationActions: the steps of the rollout have them"
// +kubebuilder:validation:XValidation:rule="!has(self.rollout) || !has(self.mutationAction)",fieldPath=".mutationAction",reason=FieldValueForbidden,message="remove mutationAction: the steps of the rollout have it"
type Binding struct {
	// name of the binding, unique in its policy. Messages, warnings and audit
	// annotations contain it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write name with lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name"`

	// paramRef names the objects that expressions use as params. The policy is
	// evaluated for each of them, and the request must satisfy all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.name) && self.name != '') != has(self.selector)",reason=FieldValueInvalid,message="set either name or selector"
	// +kubebuilder:validation:XValidation:rule="has(self.parameterNotFoundAction)",fieldPath=".parameterNotFoundAction",reason=FieldValueRequired,message="set parameterNotFoundAction for the case that there is no such object: Allow, or Deny to apply the failurePolicy"
	ParamRef *admissionregistrationv1.ParamRef `json:"paramRef,omitempty"`

	// matchResources narrows the policy's matchConstraints: a request must match
	// both. Without it, the binding applies to all requests of the policy.
	// +optional
	MatchResources *admissionregistrationv1.MatchResources `json:"matchResources,omitempty"`

	// validationActions are the actions for a request that fails a validation:
	// Deny denies it, Warn lets it pass with a warning to the client, Audit lets
	// it pass with an annotation in the audit log. Deny and Warn exclude each
	// other. Default [Deny].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Deny;Warn;Audit
	// +kubebuilder:validation:XValidation:rule="!('Deny' in self && 'Warn' in self)",reason=FieldValueInvalid,message="remove Warn: Deny already sends the message to the client"
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`

	// mutationAction says what happens with the result of mutations: Apply it to the object, or
	// Preview it. A preview records what would change, and leaves the object as it is. Default
	// Apply.
	// +optional
	// +kubebuilder:validation:Enum=Apply;Preview
	MutationAction MutationAction `json:"mutationAction,omitempty"`

	// rollout replaces validationActions and mutationAction by steps that end by time and by the
	// number of violations.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`
}

// WebhookPolicyStatus is the last observed state of a policy.
type WebhookPolicyStatus struct {
	// observedGeneration is the metadata.generation that this status describes, and -1 until Ostiary has written it.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted (the policy compiles and may be registered),
	// Registered (the webhook configurations contain it), Reachable (API servers
	// reach Ostiary or the backend), CAReady (only with a backend: its CA bundle is
	// current), RolledOut (only with rollouts: they have reached their final actions)
	// and Ready (the policy is enforced on every API server). Reconciling and Stalled
	// are present only while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// typeChecking holds the warnings of a check of the expressions against the
	// schemas of the matched resources. They do not affect enforcement.
	// +optional
	TypeChecking *admissionregistrationv1.TypeChecking `json:"typeChecking,omitempty"`

	// webhooks lists the generated webhooks of this policy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Webhooks []WebhookReference `json:"webhooks,omitempty"`

	// actions lists what the policy does, separated by commas: Mutate, or Preview if all bindings
	// only preview mutations, Annotate, and the validationActions of all bindings; or Backend.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Actions string `json:"actions,omitempty"`

	// failurePolicy is the registered one, which the API server applies if Ostiary
	// does not answer. It is Ignore if no binding denies.
	// +optional
	// +kubebuilder:validation:Enum=Fail;Ignore
	FailurePolicy admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`

	// audit is the result for stored objects. It is absent until they have been evaluated for
	// observedGeneration.
	// +optional
	Audit *AuditStatus `json:"audit,omitempty"`

	// lookups are the states of the lookups.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Lookups []LookupStatus `json:"lookups,omitempty"`

	// bindings are the states of the rollouts of bindings.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Bindings []BindingStatus `json:"bindings,omitempty"`
}

// WebhookReference names one webhook in a generated configuration.
type WebhookReference struct {
	// kind of the configuration object.
	// +required
	// +kubebuilder:validation:Enum=ValidatingWebhookConfiguration;MutatingWebhookConfiguration
	Kind string `json:"kind"`

	// configuration is the name of the configuration object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Configuration string `json:"configuration"`

	// webhook is the name of the webhook in it, as in messages and metrics of the
	// API server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Webhook string `json:"webhook"`
}

// WebhookPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type WebhookPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WebhookPolicy `json:"items"`
}
