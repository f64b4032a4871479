// Package v1alpha1 has the PolicyTest, version v1alpha1 of the group test.ostiary.dev. It
// is read from files only.
//
// +groupName=test.ostiary.dev
package v1alpha1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/internal/offline"
)

// APIVersion and Kind identify a PolicyTest.
const (
	APIVersion = "test.ostiary.dev/v1alpha1"
	Kind       = "PolicyTest"
)

// PolicyTest states what policies decide for some requests.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=policytests
type PolicyTest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// files have the policies and exceptions, and objects that they read: params, Namespaces and
	// CustomResourceDefinitions. A path is relative to the file of the test: a file, a
	// directory, a kustomization or a Helm chart, in the root of the command.
	// +optional
	Files []string `json:"files,omitempty"`

	// policies are the names of the policies to test. Others in the files have no effect.
	// +required
	// +kubebuilder:validation:MinItems=1
	Policies []string `json:"policies"`

	// kubernetesVersion is the Kubernetes version of the API server to simulate, such as
	// "1.36". The default is the latest supported version.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// cases are the requests and what is expected of them.
	// +required
	// +kubebuilder:validation:MinItems=1
	Cases []Case `json:"cases"`
}

// Case is a request and its expected result.
type Case struct {
	// name of the case, unique in the test.
	// +required
	Name string `json:"name"`

	// object of the request. It is absent for DELETE.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`

	// oldObject is the stored object of an UPDATE or DELETE.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	OldObject *runtime.RawExtension `json:"oldObject,omitempty"`

	// operation of the request. The default is UPDATE with both objects, DELETE with only
	// oldObject, and CREATE otherwise.
	// +optional
	// +kubebuilder:validation:Enum=CREATE;UPDATE;DELETE;CONNECT
	Operation string `json:"operation,omitempty"`

	// subresource of the request, such as "scale".
	// +optional
	Subresource string `json:"subresource,omitempty"`

	// resource that has the subresource, such as "deployments.apps", if several resources
	// have one of this name.
	// +optional
	Resource string `json:"resource,omitempty"`

	// user who sends the request. The default is developer.
	// +optional
	User string `json:"user,omitempty"`

	// groups of the user, besides system:authenticated.
	// +optional
	Groups []string `json:"groups,omitempty"`

	// extra are further attributes of the user, as in userInfo.extra of a request.
	// +optional
	Extra map[string]authenticationv1.ExtraValue `json:"extra,omitempty"`

	// dryRun marks the request as a dry run.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// namespace has the labels and annotations of the object's Namespace. It replaces a
	// Namespace of that name in the files.
	// +optional
	Namespace *Namespace `json:"namespace,omitempty"`

	// at is the time of the request, which decides whether exceptions of the files have ended. The
	// default is that of the flag --at, or now.
	// +optional
	At *metav1.Time `json:"at,omitempty"`

	// params are objects that policies read, besides those of the files.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Params []runtime.RawExtension `json:"params,omitempty"`

	// objects are stored objects that lookups find, besides those of the files. The object of
	// the request is not one of them, and an object without a namespace is in that of the test.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Objects []runtime.RawExtension `json:"objects,omitempty"`

	// authorizer has the answers to the checks of policies; the first that matches a check
	// counts. A check without an answer is an error.
	// +optional
	Authorizer []offline.Answer `json:"authorizer,omitempty"`

	// backends have the answers of the backends of policies, and of the plugin
	// ImagePolicyWebhook. A call without an answer is an error.
	// +optional
	Backends []BackendAnswer `json:"backends,omitempty"`

	// repeat is the number of times that the request is sent before the one whose result is
	// expected, for plugins that count requests. All are sent at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Repeat int `json:"repeat,omitempty"`

	// kubernetesVersion replaces that of the test.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// expect is the expected result. An error of an evaluation fulfills only the decision Error.
	// +required
	Expect Expectation `json:"expect"`
}

// Namespace has the metadata of a Namespace.
type Namespace struct {
	// labels of the Namespace.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of the Namespace.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// BackendAnswer is the answer of the backend of a policy.
type BackendAnswer struct {
	// policy is the name of the policy with the backend.
	// +required
	Policy string `json:"policy"`
	// allowed says whether the backend allows the request.
	// +required
	Allowed bool `json:"allowed"`
	// message of a denial.
	// +optional
	Message string `json:"message,omitempty"`
	// warnings for the client.
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}

// Decision is the result of a request.
type Decision string

// The decisions.
const (
	// Allow is a request that passes without a warning, a failed validation in the audit
	// log or a change.
	Allow Decision = "Allow"
	// Deny is a request that is denied.
	Deny Decision = "Deny"
	// Warn is a request that passes with a warning.
	Warn Decision = "Warn"
	// Audit is a request that passes with a failed validation in the audit log.
	Audit Decision = "Audit"
	// Mutate is a request that passes with a changed object.
	Mutate Decision = "Mutate"
	// Excepted is a request that passes because of an exception.
	Excepted Decision = "Excepted"
	// Error is a request for which the evaluation of a policy fails with an error, whatever
	// failurePolicy decides.
	Error Decision = "Error"
)

// Expectation is an expected result. What it does not state is not checked, except by the
// decision.
type Expectation struct {
	// decision is the effect of the policies. Allow: the request passes without a failed
	// validation in the audit log, and without warnings or changes other than those that
	// warnings, object or objectFile state. Deny: it is denied. Warn: it passes with a
	// warning. Audit: it passes with a failed validation in the audit log. Mutate: it
	// passes with a changed object. Excepted: it passes because of an exception, without what
	// Allow excludes. Error: the evaluation of a policy fails with an error,
	// whatever failurePolicy decides.
	// +required
	// +kubebuilder:validation:Enum=Allow;Deny;Warn;Audit;Mutate;Excepted;Error
	Decision Decision `json:"decision"`

	// message of one of the failed validations: all of it, without the name of the policy. Of
	// an Error it is a part of the error.
	// +optional
	Message string `json:"message,omitempty"`

	// validations are the names of all validations that are false and have a name, in any
	// order, each once. Those that ratchet or are excepted are among them.
	// +optional
	Validations []string `json:"validations,omitempty"`

	// reason of the denial, such as "Forbidden".
	// +optional
	Reason string `json:"reason,omitempty"`

	// code is the HTTP status code of the denial.
	// +optional
	Code int32 `json:"code,omitempty"`

	// causes are the messages of all failed validations of a denial, in order.
	// +optional
	Causes []string `json:"causes,omitempty"`

	// warnings are all warnings, in order, with or without the name of the policy.
	// +optional
	Warnings []string `json:"warnings,omitempty"`

	// auditAnnotations are all audit annotations except validation_failure, with keys of
	// the form "policy.key".
	// +optional
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`

	// object is the whole object after mutations.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`

	// objectFile is a file with the whole object after mutations, relative to the file of
	// the test and in its folder. The extension is .yaml, .yml or .json. The flag --update
	// writes it.
	// +optional
	ObjectFile string `json:"objectFile,omitempty"`
}
