package validation

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	messageNoMutations   = "remove mutationAction: the policy has no mutations"
	messageNoValidations = "remove validationActions: the policy has no validations, and only Warn beside mutationAction Preview " +
		"has an effect without them"
)

// checkActions rejects actions of a binding or its rollout that have no effect in the policy. The
// default validationActions of a binding are accepted without validations, so they are also
// accepted if a binding has them without a rollout.
func checkActions(spec *v1alpha1.WebhookPolicySpec, b *v1alpha1.Binding, at *field.Path) field.ErrorList {
	errs := checkMutationAction(spec, b.MutationAction, at)
	if b.Rollout == nil {
		return errs
	}
	at = at.Child("rollout")
	for i := range b.Rollout.Steps {
		s, step := &b.Rollout.Steps[i], at.Child("steps").Index(i)
		previews := s.MutationAction != v1alpha1.MutationActionApply
		errs = append(errs, checkMutationAction(spec, s.MutationAction, step)...)
		errs = append(errs, checkRolloutActions(spec, s.ValidationActions, previews, step)...)
	}
	final, previews := &b.Rollout.Final, b.Rollout.Final.MutationAction == v1alpha1.MutationActionPreview
	errs = append(errs, checkMutationAction(spec, final.MutationAction, at.Child("final"))...)
	return append(errs, checkRolloutActions(spec, final.ValidationActions, previews, at.Child("final"))...)
}

func checkMutationAction(spec *v1alpha1.WebhookPolicySpec, action v1alpha1.MutationAction, at *field.Path) field.ErrorList {
	if action == "" || spec.Mutates() {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Child("mutationAction"), messageNoMutations)}
}

// checkRolloutActions rejects validationActions without validations, except the warning about a
// preview.
func checkRolloutActions(
	spec *v1alpha1.WebhookPolicySpec, actions []admissionregistrationv1.ValidationAction, previews bool, at *field.Path,
) field.ErrorList {
	if len(actions) == 0 || spec.Refuses() {
		return nil
	}
	warns := len(actions) == 1 && slices.Contains(actions, admissionregistrationv1.Warn)
	if spec.Mutates() && previews && warns {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Child("validationActions"), messageNoValidations)}
}

// rollouts suggests to write down what rollouts have reached: a status can be lost.
func (w *warner) rollouts(p *v1alpha1.WebhookPolicy, at *field.Path) {
	for i := range p.Spec.Bindings {
		b := &p.Spec.Bindings[i]
		isFinal := slices.ContainsFunc(p.Status.Bindings, func(s v1alpha1.BindingStatus) bool { return s.Name == b.Name && s.Final })
		if b.Rollout == nil || !isFinal {
			continue
		}
		w.warn(at.Child("bindings").Index(i).Child("rollout"), "the rollout has reached its final action, which only the status records: "+
			"replace rollout by the content of rollout.final, so that a lost status does not begin it again")
	}
}
