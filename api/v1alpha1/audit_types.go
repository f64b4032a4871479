package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Audit configures the evaluation of a policy on stored objects.
type Audit struct {
	// enabled says whether the validations are evaluated on stored objects. Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// Texts of the summary of an audit.
const (
	// AuditNotAudited means that the policy is not evaluated on stored objects.
	AuditNotAudited = "n/a"
	// AuditNoAccess means that Ostiary may not read the objects.
	AuditNoAccess = "no access"
	// AuditAtLeast begins the summary if some objects could not be read.
	AuditAtLeast = "≥ "
)

// AuditStatus is the result of a policy for stored objects. Each is evaluated as an update
// that changes nothing by an anonymous user, and, if that finds nothing, as the creation of an
// object with the same content, without mutations.
type AuditStatus struct {
	// summary has the numbers below in one text: "2 + 5 on create, 1 errors", "n/a" if the
	// policy is not evaluated on stored objects, "no access" if Ostiary may not read them, and
	// "≥ 2" if some of them could not be read.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Summary string `json:"summary,omitempty"`

	// violations is the number of objects that fail a validation as they are. It is absent if
	// something could not be read: see missing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Violations *int64 `json:"violations,omitempty"`

	// violationsOnCreate is the number of objects that pass as they are, and fail a validation
	// if they are created again, for example by a rollout.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ViolationsOnCreate int64 `json:"violationsOnCreate,omitempty"`

	// errors is the number of objects for which the evaluation fails with an error.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Errors int64 `json:"errors,omitempty"`

	// excepted is the number of objects that pass only because of an exception. They are not
	// among the violations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Excepted int64 `json:"excepted,omitempty"`

	// wouldChange is the number of objects that a mutation of the policy would change. It is
	// absent without mutations, and if something could not be read: see missing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WouldChange *int64 `json:"wouldChange,omitempty"`

	// objects is the number of evaluated objects: those that the policy matches.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects int64 `json:"objects,omitempty"`

	// time is the end of a complete scan with this result. With several resources, it is
	// that of the least recent one. If a later scan has the same result, time changes only
	// if it is older than five seconds for each policy of the cluster.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// missing lists what the numbers do not include, why, and how to fix it. At most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=1024
	Missing []string `json:"missing,omitempty"`

	// examples are the first violations, each with the resource, the namespace and the
	// name of the object, and the name of the validation. "(CREATE)" marks those of
	// violationsOnCreate, and "(error)" those of errors. At most 5.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=512
	Examples []string `json:"examples,omitempty"`

	// workloads are the first workloads whose new Pods the policy would deny, for example
	// at the next restart, scaling or drain, as "Deployment shop/web": those whose pod
	// templates are evaluated, and the controllers of Pods. The last one of 6 says how many
	// more there are.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=6
	// +kubebuilder:validation:items:MaxLength=512
	Workloads []string `json:"workloads,omitempty"`
}

// Audits reports whether the policy is to be evaluated on stored objects.
func (s *WebhookPolicySpec) Audits() bool {
	return s.Audit == nil || s.Audit.Enabled == nil || *s.Audit.Enabled
}
