package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookPolicy decides API requests with CEL expressions. Ostiary registers
// the webhooks that send it the matching requests, keeps their certificates
// fresh, and answers the calls. Its fields are those of Kubernetes' own
// ValidatingAdmissionPolicy, MutatingAdmissionPolicy and their bindings, with
// the same names and meaning.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=whp,categories=policy
// +kubebuilder:printcolumn:name="Actions",type=string,JSONPath=`.status.actions`,description="What the policy does: Mutate, Annotate, Backend, and what happens to a request that fails a validation."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True when the policy is in force."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the policy is, or is not, in force."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Failure-Policy",type=string,priority=1,JSONPath=`.status.failurePolicy`,description="What the API server does with a request that Ostiary cannot answer."
// +kubebuilder:printcolumn:name="Webhook",type=string,priority=1,JSONPath=`.status.webhooks[*].configuration`,description="The generated configurations that carry this policy."
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type WebhookPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the policy demands.
	// +required
	Spec WebhookPolicySpec `json:"spec"`

	// status is what Ostiary last observed of the policy. Users do not write it.
	// +optional
	Status WebhookPolicyStatus `json:"status,omitempty"`
}

// WebhookPolicySpec is what a policy demands: which requests it looks at, what
// they must satisfy, and what happens to those that do not.
//
// +kubebuilder:validation:XValidation:rule="has(self.plugin) || has(self.backend) || (has(self.mutations) && size(self.mutations) > 0) || (has(self.validations) && size(self.validations) > 0) || (has(self.auditAnnotations) && size(self.auditAnnotations) > 0)",reason=FieldValueRequired,message="add at least one entry to mutations, validations or auditAnnotations, or a plugin or a backend"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.mutations)",fieldPath=".mutations",reason=FieldValueForbidden,message="remove mutations, or backend: a policy has one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.validations)",fieldPath=".validations",reason=FieldValueForbidden,message="remove validations, or backend: a policy has one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.auditAnnotations)",fieldPath=".auditAnnotations",reason=FieldValueForbidden,message="remove auditAnnotations, or backend: a policy has one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.bindings)",fieldPath=".bindings",reason=FieldValueForbidden,message="remove bindings: the backend alone decides, write where it is called in matchConstraints"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.paramKind)",fieldPath=".paramKind",reason=FieldValueForbidden,message="remove paramKind: a backend is given no params"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.variables)",fieldPath=".variables",reason=FieldValueForbidden,message="remove variables: the API server evaluates the matchConditions of a backend, and knows none"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.matchConstraints) || !has(self.matchConstraints.excludeResourceRules)",fieldPath=".matchConstraints.excludeResourceRules",reason=FieldValueForbidden,message="remove excludeResourceRules: a webhook has none, write what it is not called for as a matchCondition"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.matchConstraints) || !has(self.matchConstraints.resourceRules) || self.matchConstraints.resourceRules.all(r, !has(r.resourceNames))",fieldPath=".matchConstraints.resourceRules",reason=FieldValueForbidden,message="remove resourceNames: a webhook has none, write the names as a matchCondition on request.name"
// +kubebuilder:validation:XValidation:rule="!has(self.plugin) || !has(self.backend)",fieldPath=".plugin",reason=FieldValueForbidden,message="remove plugin, or backend: a policy has one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.plugin) || !has(self.mutations)",fieldPath=".mutations",reason=FieldValueForbidden,message="remove mutations, or plugin: a policy has one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.plugin) || !has(self.validations)",fieldPath=".validations",reason=FieldValueForbidden,message="remove validations, or plugin: a policy has one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.plugin) || !has(self.auditAnnotations)",fieldPath=".auditAnnotations",reason=FieldValueForbidden,message="remove auditAnnotations, or plugin: a policy has one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.plugin) || !has(self.paramKind)",fieldPath=".paramKind",reason=FieldValueForbidden,message="remove paramKind: a plugin is given no params"
// +kubebuilder:validation:XValidation:rule="has(self.plugin) || has(self.matchConstraints)",fieldPath=".matchConstraints",reason=FieldValueRequired,message="say which requests this policy is for"
// +kubebuilder:validation:XValidation:rule="has(self.plugin) || !has(self.matchConstraints) || (has(self.matchConstraints.resourceRules) && size(self.matchConstraints.resourceRules) > 0)",fieldPath=".matchConstraints.resourceRules",reason=FieldValueRequired,message="add at least one rule that names the requests this policy is for"
// +kubebuilder:validation:XValidation:rule="has(self.paramKind) || !has(self.bindings) || self.bindings.all(b, !has(b.paramRef))",fieldPath=".paramKind",reason=FieldValueRequired,message="set paramKind: a binding has a paramRef"
// +kubebuilder:validation:XValidation:rule="!has(self.reinvocationPolicy) || has(self.plugin) || (has(self.mutations) && size(self.mutations) > 0) || (has(self.backend) && self.backend.type == 'Mutating')",fieldPath=".reinvocationPolicy",reason=FieldValueForbidden,message="remove reinvocationPolicy: only mutations are invoked again"
// +kubebuilder:validation:XValidation:rule="!has(self.order) || has(self.plugin) || (has(self.mutations) && size(self.mutations) > 0) || (has(self.backend) && self.backend.type == 'Mutating')",fieldPath=".order",reason=FieldValueForbidden,message="remove order: only mutations have one"
// +kubebuilder:validation:XValidation:rule="!has(self.mutations) || size(self.mutations) == 0 || (has(self.validations) && size(self.validations) > 0) || (has(self.auditAnnotations) && size(self.auditAnnotations) > 0) || !has(self.matchConstraints) || !has(self.matchConstraints.resourceRules) || !self.matchConstraints.resourceRules.exists(r, 'DELETE' in r.operations)",fieldPath=".matchConstraints.resourceRules",reason=FieldValueInvalid,message="remove DELETE from operations: what is deleted is not mutated, and the policy does nothing else"
type WebhookPolicySpec struct {
	// paramKind is the kind of the objects that bindings may hand to the
	// expressions as params. Ostiary watches objects of this kind, for which
	// its role must allow get, list and watch.
	// +optional
	ParamKind *admissionregistrationv1.ParamKind `json:"paramKind,omitempty"`

	// matchConstraints says which requests the policy looks at, by resource,
	// operation, namespace labels and object labels. A request has to match
	// all of it. With a plugin it may be left out, and so may its resourceRules:
	// they narrow what the plugin is for.
	// +optional
	MatchConstraints *admissionregistrationv1.MatchResources `json:"matchConstraints,omitempty"`

	// matchConditions are CEL expressions that a request must satisfy, all of
	// them, before the policy looks at it. They see object, oldObject, request,
	// params, authorizer and variables. At most 64.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`

	// variables are named CEL expressions that later expressions of this
	// policy read as variables.<name>. Each is evaluated at most once a
	// request, when it is first read, and may read those above it. At most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Variables []admissionregistrationv1.Variable `json:"variables,omitempty"`

	// mutations change the object of the request, in their order; each sees
	// what the one before made. They run before any validation. At most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Mutations []admissionregistrationv1.Mutation `json:"mutations,omitempty"`

	// validations are CEL expressions that must be true for the request to
	// pass. Every one of them is evaluated. At most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Validations []admissionregistrationv1.Validation `json:"validations,omitempty"`

	// auditAnnotations are CEL expressions whose values are written to the
	// audit log of the API server. At most 20.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=20
	AuditAnnotations []admissionregistrationv1.AuditAnnotation `json:"auditAnnotations,omitempty"`

	// bindings say where the policy is in force, with which params, and what
	// happens to a request that fails a validation. Without any, one binding
	// with validationActions [Deny] is assumed. At most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Bindings []Binding `json:"bindings,omitempty"`

	// plugin is an admission plugin that decides instead of expressions. It has
	// no params, mutations, validations and auditAnnotations beside it.
	// +optional
	Plugin *Plugin `json:"plugin,omitempty"`

	// backend is a webhook that somebody else hosts, which decides instead of
	// expressions. Ostiary registers it. The matchConditions of such a policy
	// are evaluated by the API server itself, without params and variables.
	// +optional
	Backend *Backend `json:"backend,omitempty"`

	// failurePolicy says what happens to a request for which the policy has no
	// answer: Ostiary or the backend cannot be reached, or an expression fails
	// with an error.
	// Fail refuses the request, Ignore lets it pass. Default Fail.
	// +optional
	// +kubebuilder:validation:Enum=Fail;Ignore
	FailurePolicy *admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`

	// timeoutSeconds is how long the API server waits for an answer before it
	// applies failurePolicy. 1 to 30 seconds, default 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=30
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// reinvocationPolicy says whether the mutations run once more when another
	// webhook or policy changes the object after them: Never or IfNeeded.
	// Default Never.
	// +optional
	// +kubebuilder:validation:Enum=Never;IfNeeded
	ReinvocationPolicy *admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`

	// order is where the mutations stand among those of other policies: lower
	// ones run first. Equal ones that share a webhook run in the order of the
	// policies' names; give them different orders where it matters. 0 to 1000,
	// default 500.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Order *int32 `json:"order,omitempty"`

	// breakGlass lets users skip this policy whom RBAC allows the verb
	// breakglass on it. What it would refuse then passes, and what it would
	// change stays as it is; the audit log says so. While Ostiary does not
	// answer, failurePolicy decides about them too. A backend is not called for
	// their requests, of which nothing is noted. Default false.
	// +optional
	BreakGlass bool `json:"breakGlass,omitempty"`

	// allowCriticalResources has the policy called for critical resources that
	// resourceRules, or those of its plugin, name, with their API group: Leases,
	// Events, and the reviews of authentication.k8s.io and authorization.k8s.io.
	// Without it rules may not name them, and wildcards never reach them. With failurePolicy Fail
	// they are refused while nobody answers, outside of the exempt namespaces.
	// Policies and what admission is configured with can never be named.
	// Default false.
	// +optional
	AllowCriticalResources bool `json:"allowCriticalResources,omitempty"`
}

// Binding puts a policy into effect: it says where, with which params, and
// what happens to a request that fails a validation.
type Binding struct {
	// name tells this binding from the others of its policy. It stands in
	// messages, warnings and audit annotations.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write name with lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name"`

	// paramRef names the objects that the expressions read as params. Each of
	// them is evaluated, and all have to be satisfied.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.name) && self.name != '') != has(self.selector)",reason=FieldValueInvalid,message="set either name or selector"
	// +kubebuilder:validation:XValidation:rule="has(self.parameterNotFoundAction)",fieldPath=".parameterNotFoundAction",reason=FieldValueRequired,message="say what happens where there is no such object: Allow, or Deny for the failurePolicy"
	ParamRef *admissionregistrationv1.ParamRef `json:"paramRef,omitempty"`

	// matchResources narrows what the policy's matchConstraints match. A
	// request has to match both. Without any, the binding is for all of it.
	// +optional
	MatchResources *admissionregistrationv1.MatchResources `json:"matchResources,omitempty"`

	// validationActions are what happens to a request that fails a validation:
	// Deny refuses it, Warn lets it pass with a warning to the client, Audit
	// lets it pass with an annotation in the audit log. Deny and Warn cannot
	// stand together. Default [Deny].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Deny;Warn;Audit
	// +kubebuilder:validation:XValidation:rule="!('Deny' in self && 'Warn' in self)",reason=FieldValueInvalid,message="remove Warn: Deny already tells the client"
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`
}

// WebhookPolicyStatus is what Ostiary last observed of a policy.
type WebhookPolicyStatus struct {
	// observedGeneration is the metadata.generation that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted (the policy compiles), Registered (webhook
	// configurations contain it), Effective (API servers reach Ostiary) and Ready (all
	// of these: the policy is enforced). With a backend there are CAReady (its CA
	// bundle is known) and Reachable (a TLS handshake with it succeeded), and no
	// Effective. Reconciling, Stalled and Panicking are present only while they are
	// true, Idempotent only while it is false.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// typeChecking holds what a check of the expressions against the schemas of
	// the matched resources found. The policy is in force all the same.
	// +optional
	TypeChecking *admissionregistrationv1.TypeChecking `json:"typeChecking,omitempty"`

	// webhooks name the generated webhooks that carry this policy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Webhooks []WebhookReference `json:"webhooks,omitempty"`

	// actions are what the policy does, as one word: Mutate, Annotate, and the
	// validationActions of all bindings; or Backend.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Actions string `json:"actions,omitempty"`

	// failurePolicy is the failurePolicy that the API server applies when
	// Ostiary cannot be reached. It is Ignore where no binding denies.
	// +optional
	// +kubebuilder:validation:Enum=Fail;Ignore
	FailurePolicy admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
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

	// webhook is the name of the webhook in it, as API server messages and
	// metrics give it.
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
