package audit

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// FromNative returns a native policy with its bindings, of which it has at least one, as a
// policy for NewEvaluator.
func FromNative(native *admissionregistrationv1.ValidatingAdmissionPolicy, bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) *v1alpha1.WebhookPolicy {
	p := &v1alpha1.WebhookPolicy{Spec: v1alpha1.WebhookPolicySpec{
		ParamKind: native.Spec.ParamKind, MatchConstraints: native.Spec.MatchConstraints, MatchConditions: native.Spec.MatchConditions,
		Variables: native.Spec.Variables, Validations: v1alpha1.ValidationsOf(native.Spec.Validations), AuditAnnotations: native.Spec.AuditAnnotations,
		FailurePolicy:          native.Spec.FailurePolicy,
		AllowCriticalResources: true, // the API server evaluates native policies for Events and Leases too
	}}
	p.Name, p.UID, p.Generation = native.Name, native.UID, native.Generation
	for _, b := range bindings {
		p.Spec.Bindings = append(p.Spec.Bindings, v1alpha1.Binding{
			Name: b.Name, ParamRef: b.Spec.ParamRef, MatchResources: b.Spec.MatchResources, ValidationActions: b.Spec.ValidationActions,
		})
	}
	return p
}
