package validation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/rollout"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxWarnings is the maximum of warnings about one policy.
	maxWarnings = 10
	// maxWarning is the maximum length of a warning, in bytes. API servers truncate
	// longer ones if there are many.
	maxWarning = 256
)

// Warnings returns the risks of a policy, each with its field. Their number and length
// are bounded.
func Warnings(p *v1alpha1.WebhookPolicy, facts ClusterInfo) []string {
	return Bounded(warningsAbout(p, facts))
}

func warningsAbout(p *v1alpha1.WebhookPolicy, facts ClusterInfo) []advice.Warning {
	var w warner
	spec := field.NewPath("spec")
	w.annotations(p, facts.Now)
	w.timeoutSeconds(&p.Spec, spec)
	final := rollout.AtEnd(p) // risks are known before they take effect
	w.failurePolicy(&final.Spec, facts, spec)
	w.matchConstraints(&final.Spec, spec)
	// Only rules that the author has written: those of a plugin have no field to change.
	w.resourceRules(&p.Spec, spec)
	w.allowCriticalResources(&p.Spec, spec)
	w.served(&p.Spec, facts, spec)
	w.podTemplates(&p.Spec, facts, spec)
	w.validations(&p.Spec, spec)
	w.rollouts(p, spec)
	w.lookups(&p.Spec, spec)
	return w.warnings
}

// warner collects warnings.
type warner struct{ warnings []advice.Warning }

func (w *warner) warn(at *field.Path, format string, args ...any) {
	w.warnings = append(w.warnings, advice.Warning{Field: at.String(), Text: fmt.Sprintf(format, args...)})
}

// Bounded returns the texts of the first warnings, each on one line and truncated to the length
// that API servers forward, and the number of omitted ones.
func Bounded(warnings []advice.Warning) []string {
	out := advice.Texts(warnings)
	if more := len(out) - maxWarnings; more > 0 {
		out = append(out[:maxWarnings:maxWarnings], fmt.Sprintf("%d more warnings were left out", more))
	}
	for i, warning := range out {
		out[i] = truncate.String(strings.Join(strings.Fields(warning), " "), maxWarning)
	}
	return out
}
