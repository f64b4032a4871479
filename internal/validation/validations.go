package validation

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
)

// validations warns about ratchet in a policy without updates.
func (w *warner) validations(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if spec.MatchConstraints == nil || spec.TemplateSpec() != nil || slices.ContainsFunc(rulesOf(spec), matchesUpdate) {
		return
	}
	for i := range spec.Validations {
		if spec.Ratchets(i) {
			w.warn(at.Child("validations").Index(i), "ratchet has no effect: no rule matches UPDATE")
			return
		}
	}
}

// ratchetRisks warns about validations for which ratchet lets more pass than objects that
// were bad before.
func (w *warner) ratchetRisks(risks []celsyntax.RatchetRisk, at *field.Path) {
	for _, risk := range risks {
		here := at.Index(risk.Validation).Child("expression")
		if risk.Reads == "" {
			w.warn(here, "it does not read object, so it is false for the stored object too, and with ratchet never denies "+
				"an UPDATE: set ratchet: false")
			continue
		}
		w.warn(here, "it reads %s, and who wrote the stored object is not known: ratchet evaluates it for the current "+
			"request; set ratchet: false", risk.Reads)
	}
}

func matchesUpdate(r admissionregistrationv1.NamedRuleWithOperations) bool {
	return slices.Contains(r.Operations, admissionregistrationv1.Update) ||
		slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
}
