package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// longTimeout is the time in seconds after which many clients give up.
const longTimeout = 10

func checkTimeoutSeconds(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if t := spec.EffectiveTimeoutSeconds(); t < 1 || t > 30 {
		return field.ErrorList{field.Invalid(at.Child("timeoutSeconds"), t, "choose between 1 and 30 seconds")}
	}
	return nil
}

// timeoutSeconds warns about a timeout that is longer than that of many clients.
func (w *warner) timeoutSeconds(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if t := spec.EffectiveTimeoutSeconds(); t > longTimeout {
		w.warn(at.Child("timeoutSeconds"),
			"requests wait up to %d seconds while %s does not answer, longer than many clients do; choose %d or less",
			t, answererOf(spec), longTimeout)
	}
}
