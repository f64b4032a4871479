package policy

import (
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/truncate"
)

// ViolationReport is a request that a policy denied, warned about or audited, or that it could not evaluate.
type ViolationReport struct {
	Policy string
	// Decision is DecisionDeny, DecisionWarn, DecisionAudit or DecisionError.
	Decision Decision
	// Request holds the memory of the objects: a receiver must not keep it, nor Violations.
	Request *admissionv1.AdmissionRequest
	// Violations returns at least one violation.
	Violations func() []Violation
}

// reports reports whether the host gets a decision as a violation.
func (h Environment) reports(d Decision) bool {
	if h.Violated == nil {
		return false
	}
	switch d {
	case DecisionError, DecisionDeny, DecisionWarn, DecisionAudit:
		return true
	}
	return false
}

// reportResults reports the results of the validating phase.
func (c *Compiled) reportResults(r *request, decision Decision, results []result, host Environment) {
	host.Violated(ViolationReport{Policy: c.name, Decision: decision, Request: r.raw, Violations: func() (out []Violation) {
		for i := range results {
			out = append(out, results[i].violations()...)
		}
		return out
	}})
}

// report reports a step of the mutating phase.
func (s *step) report(r *request, decision Decision, host Environment) {
	host.Violated(ViolationReport{Policy: s.policy.name, Decision: decision, Request: r.raw, Violations: func() (out []Violation) {
		v := Violation{Decision: decision, Binding: s.binding.name, Template: r.template}
		if s.err != nil {
			v.Message = truncate.String(s.err.Error(), maxOneMessage)
			return []Violation{v}
		}
		for i := range s.refusals {
			v.Message = truncate.String(s.refusals[i].Message, maxOneMessage)
			out = append(out, v)
		}
		return out
	}})
}
