package validation

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// AnnotationWarnings returns the warnings about the annotations of a policy at a time; none for nil.
func AnnotationWarnings(p *v1alpha1.WebhookPolicy, now time.Time) []string {
	if p == nil {
		return nil
	}
	var w warner
	w.annotations(p, now)
	return Bounded(w.warnings)
}

// annotations warns about a help URL that messages do not contain, and about a suspension without effect.
func (w *warner) annotations(p *v1alpha1.WebhookPolicy, now time.Time) {
	if p.Annotations[v1alpha1.AnnotationHelp] != "" && p.HelpURL() == "" {
		w.warn(field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationHelp),
			"messages do not contain it: use an http or https URL of at most %d bytes", v1alpha1.MaxHelpBytes)
	}
	path := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationSuspendedUntil)
	until := p.SuspendedUntil()
	if begins := until.Add(-v1alpha1.MaxSuspension); !now.IsZero() && now.Before(begins) {
		w.warn(path, "the policy is not suspended before %s, because a suspension lasts at most %g days: write an earlier time",
			begins.UTC().Format(time.RFC3339), v1alpha1.MaxSuspension.Hours()/24)
	}
	if p.Annotations[v1alpha1.AnnotationSuspendedUntil] == "" || !until.IsZero() {
		return
	}
	if p.Spec.Backend != nil {
		w.warn(path, "the policy is not suspended: API servers call its backend themselves; delete the policy instead")
		return
	}
	w.warn(path, "the policy is not suspended: write a time such as 2027-03-01T12:00:00Z")
}
