package conversion

import (
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Original is a source in CEL as a native policy with the expressions of its author. Its
// decisions are compared with those of the result. It has one of the policies.
type Original struct {
	Validating         *admissionregistrationv1.ValidatingAdmissionPolicy
	ValidatingBindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	Mutating           *admissionregistrationv1.MutatingAdmissionPolicy
	MutatingBindings   []*admissionregistrationv1.MutatingAdmissionPolicyBinding
	// Param is the only param; nil means the objects of the input.
	Param *unstructured.Unstructured
	// Matches selects requests besides the policy; nil is all.
	Matches func(OriginalRequest) bool
	// Unlike is why a native policy does not decide like the source; empty if it does.
	Unlike string
}

// OriginalRequest is a request that Matches selects.
type OriginalRequest struct {
	*admissionv1.AdmissionRequest
	// Object is the metadata of the object, of a DELETE that of the old one.
	Object *metav1.PartialObjectMetadata
	// InNamespace is the Namespace of the object; nil for cluster-scoped objects.
	InNamespace *corev1.Namespace
}

// NewOriginal returns a validating policy with one binding for all requests.
func NewOriginal(
	name string,
	spec admissionregistrationv1.ValidatingAdmissionPolicySpec,
	actions []admissionregistrationv1.ValidationAction,
) *Original {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: BindingName}}
	b.Spec.PolicyName, b.Spec.ValidationActions = name, actions
	return &Original{
		Validating:         p.DeepCopy(),
		ValidatingBindings: []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b.DeepCopy()},
	}
}
