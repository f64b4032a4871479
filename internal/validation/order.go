package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// maxOrder limits orders to four digits, so that names sort like the numbers.
const maxOrder = 1000

func checkOrder(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if o := spec.EffectiveOrder(); o < 0 || o > maxOrder {
		return field.ErrorList{field.Invalid(at.Child("order"), o, fmt.Sprintf("choose between 0 and %d", maxOrder))}
	}
	return nil
}
