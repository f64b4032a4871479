package validation

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func checkFailurePolicy(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	valid := []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}
	return checkValue(at.Child("failurePolicy"), spec.EffectiveFailurePolicy(), valid)
}

// checkValue rejects a value that is not one of those that are valid.
func checkValue[S ~string](at *field.Path, value S, valid []S) field.ErrorList {
	if slices.Contains(valid, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, valid)}
}

// failurePolicy warns that a single replica denies requests while it restarts.
func (w *warner) failurePolicy(spec *v1alpha1.WebhookPolicySpec, facts ClusterInfo, at *field.Path) {
	if facts.Replicas == 1 && dependsOnOstiary(spec) {
		w.warn(at.Child("failurePolicy"),
			"Fail with a single replica of Ostiary: while it restarts, matching requests are denied; run two or more")
	}
}

// failsClosed reports whether requests are denied while Ostiary does not answer, in at
// least one phase.
func failsClosed(spec *v1alpha1.WebhookPolicySpec) bool {
	return dependsOnOstiary(spec) || (spec.Backend != nil && spec.EffectiveFailurePolicy() == admissionregistrationv1.Fail)
}

// dependsOnOstiary is failsClosed for policies without a backend.
func dependsOnOstiary(spec *v1alpha1.WebhookPolicySpec) bool {
	return (spec.Mutates() && spec.MutationFailurePolicy() == admissionregistrationv1.Fail) ||
		(spec.Validates() && spec.WebhookFailurePolicy() == admissionregistrationv1.Fail)
}
