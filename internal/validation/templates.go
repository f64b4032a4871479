package validation

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
)

// templates warns about kinds of podTemplates that the API server does not serve, or that
// are not evaluated.
func (w *warner) templates(spec *v1alpha1.WebhookPolicySpec, facts ClusterInfo, at *field.Path) {
	if spec.PodTemplates == nil || facts.Resources == nil {
		return
	}
	for i, k := range spec.PodTemplates.Kinds {
		k, _ = k.Resolve()
		here := at.Child("podTemplates", "kinds").Index(i)
		gv := schema.GroupVersion{Group: k.Group, Version: k.Version}
		served, ok := facts.Resources[gv]
		if !ok {
			w.warn(here, "the API server does not serve the version %q of %s: correct it, unless it is still to be installed", k.Version, describeGroup(k.Group))
			continue
		}
		if served == nil { // not known
			continue
		}
		at := slices.IndexFunc(served, func(r metav1.APIResource) bool { return r.Name == k.Resource })
		switch {
		case at < 0:
			w.warn(here.Child("resource"), "the API server does not serve %q in %s%s", k.Resource, gv, facts.similar(k.Resource, []schema.GroupVersion{gv}))
		case !served[at].Namespaced:
			w.warn(here.Child("resource"), "%q is cluster-scoped, and only the templates of namespaced objects are evaluated", k.Resource)
		}
	}
}

// ratchets warns about ratchet in a policy without updates.
func (w *warner) ratchets(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	if spec.MatchConstraints == nil || spec.TemplateSpec() != nil || slices.ContainsFunc(spec.MatchConstraints.ResourceRules, updates) {
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

func updates(r admissionregistrationv1.NamedRuleWithOperations) bool {
	return slices.Contains(r.Operations, admissionregistrationv1.Update) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
}
