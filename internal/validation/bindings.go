package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func checkBindings(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, binding := range spec.Bindings {
		errs = append(errs, checkActions(spec, &binding, at.Child("bindings").Index(i))...)
		if binding.MatchResources != nil {
			errs = append(errs, checkMatch(binding.MatchResources, at.Child("bindings").Index(i).Child("matchResources"))...)
		}
	}
	return errs
}
