package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// annotations warns about a help URL that messages do not contain, and about a suspension without effect.
func (w *warner) annotations(p *v1alpha1.WebhookPolicy) {
	if p.Annotations[v1alpha1.AnnotationHelp] != "" && p.HelpURL() == "" {
		w.warn(field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationHelp),
			"messages do not contain it: use an http or https URL of at most %d bytes", v1alpha1.MaxHelpBytes)
	}
	if p.Annotations[v1alpha1.AnnotationSuspendedUntil] == "" || !p.SuspendedUntil().IsZero() {
		return
	}
	path := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationSuspendedUntil)
	if p.Spec.Backend != nil {
		w.warn(path, "the policy is not suspended: API servers call its backend themselves; delete the policy instead")
		return
	}
	w.warn(path, "the policy is not suspended: write a time such as 2027-03-01T12:00:00Z")
}
