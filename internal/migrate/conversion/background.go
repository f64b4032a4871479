package conversion

import "github.com/ostiary/ostiary/api/v1alpha1"

// Why a policy that is not evaluated for requests is left out, and what to do instead.
const (
	OnlyExisting          = "the policy applies only to existing objects, and Ostiary evaluates requests too"
	InsteadOfOnlyExisting = "let it apply to requests with the action Audit, and the audit evaluates existing objects"
)

// SetBackground converts a field of the source that says whether existing objects are
// evaluated; nil is the default, as in Ostiary. It has no effect on mutations, which the
// audit does not evaluate. Call it after the validations or the plugin are set.
func (o *Output) SetBackground(field string, evaluated *bool) {
	s := &o.Policy().Spec
	switch {
	case evaluated == nil || len(s.Validations) == 0 && s.Plugin == nil:
	case *evaluated:
		o.Background = field
	case s.Plugin == nil:
		s.Audit = &v1alpha1.Audit{Enabled: evaluated}
	}
}
