package options

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	minAuditInterval = time.Minute
	maxReportResults = 500
)

// Audit configures the evaluation of policies on stored objects.
type Audit struct {
	// Interval is 0 if there is none.
	Interval time.Duration
	// Native evaluates ValidatingAdmissionPolicies too.
	Native bool
	// Results is the maximum number of described objects for each policy and namespace.
	Results int
}

func (o *Options) bindAudit(f *pflag.FlagSet) {
	f.DurationVar(&o.Audit.Interval, "audit-interval", time.Hour, "time between two scans of the stored objects that policies match; changed policies are evaluated at once; 0 disables the audit")
	f.BoolVar(&o.Audit.Native, "audit-native", false, "evaluate ValidatingAdmissionPolicies with their bindings on stored objects, too")
	f.IntVar(&o.Audit.Results, "report-results", 100, "maximum number of objects that the audit describes for each policy and namespace; further ones are only counted")
}

func (o *Options) validateAudit() field.ErrorList {
	var errs field.ErrorList
	if i := o.Audit.Interval; i != 0 && i < minAuditInterval {
		errs = append(errs, field.Invalid(field.NewPath("--audit-interval"), i.String(), "give at least "+minAuditInterval.String()+", or 0 to disable the audit"))
	}
	if n := o.Audit.Results; n < 0 || n > maxReportResults {
		errs = append(errs, field.Invalid(field.NewPath("--report-results"), n, "give a number between 0 and 500"))
	}
	return errs
}
