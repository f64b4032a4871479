package validation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func checkReinvocationPolicy(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	return checkValue(at.Child("reinvocationPolicy"), spec.EffectiveReinvocationPolicy(),
		[]admissionregistrationv1.ReinvocationPolicyType{
			admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy,
		})
}
