package policy

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/truncate"
)

// Violation is a validation that is false, or an error of an evaluation.
type Violation struct {
	// Decision is DecisionDeny, DecisionWarn, DecisionAudit, DecisionRatchet or DecisionError.
	Decision Decision
	// Message is text of the policy or of Ostiary. It holds values of objects only if Environment.ReportsValues permits
	// them. The text for the client of the request is in the response.
	Message string
	// Binding, Validation and Template, the path of the pod template, are empty without one.
	Binding, Validation, Template string
}

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
func (c *Compiled) reportResults(on *subject, decision Decision, results []result, host Environment) {
	host.Violated(ViolationReport{Policy: c.name, Decision: decision, Request: on.raw, Violations: func() (out []Violation) {
		return c.violations(on, results, host)
	}})
}

// report reports a step of the mutating phase.
func (s *step) report(decision Decision, host Environment) {
	host.Violated(ViolationReport{Policy: s.policy.name, Decision: decision, Request: s.on.raw, Violations: func() (out []Violation) {
		values := s.policy.reportsValues(s.on, host)
		violation := func(message string) Violation {
			return Violation{Decision: decision, Message: truncate.String(message, maxOneMessage), Binding: s.binding.name, Template: s.on.template}
		}
		if s.err != nil {
			return []Violation{violation(s.policy.errorText(s.err, values))}
		}
		for i := range s.refusals {
			out = append(out, violation(s.policy.pluginText(s.refusals[i].Message, values)))
		}
		return out
	}})
}

// violations returns the false validations and the errors of evaluations.
func (c *Compiled) violations(on *subject, results []result, host Environment) (out []Violation) {
	values := c.reportsValues(on, host)
	for i := range results {
		of := &results[i]
		add := func(d Decision, message, validation string) {
			out = append(out, Violation{Decision: d, Message: truncate.String(message, maxOneMessage), Binding: of.binding.name, Validation: validation, Template: of.template})
		}
		if of.err != nil {
			add(DecisionError, c.errorText(of.binding.misconfigured(of.err), values), "")
			continue
		}
		for j, d := range of.decisions {
			switch v := of.validation(j); {
			case isError(d):
				add(DecisionError, c.decisionErrorText(j, d.Message, values), v.name)
			case d.Action == validating.ActionDeny:
				add(of.denied(), c.denialText(on, j, d.Message, values), v.name)
			case v.ratcheted != "":
				add(DecisionRatchet, c.denialText(on, j, d.Message, values), v.name)
			}
		}
		for j, x := range of.annotations {
			if x.Action == validating.AuditAnnotationActionError {
				add(DecisionError, c.annotationErrorText(j, x.Error, values), "")
			}
		}
	}
	return out
}

// denied returns the decision about a false validation.
func (r *result) denied() Decision {
	switch actions := r.actions(); {
	case slices.Contains(actions, admissionregistrationv1.Deny):
		return DecisionDeny
	case slices.Contains(actions, admissionregistrationv1.Warn):
		return DecisionWarn
	}
	return DecisionAudit
}
