package policy

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Violation is a validation that is false, or an error of an evaluation.
type Violation struct {
	// Decision is DecisionDeny, DecisionWarn, DecisionAudit, DecisionRatchet, DecisionExcepted,
	// DecisionPreview or DecisionError.
	Decision Decision
	// Message is text of the policy or of Ostiary. It holds values of objects only if Environment.ReportsValues permits
	// them. The text for the client of the request is in the response.
	Message string
	// Binding, Validation and Template, the path of the pod template, are empty without one.
	Binding, Validation, Template string
	// Exception is what DecisionExcepted is due to; nil for another decision.
	Exception *exceptions.Entry
}

// ViolationReport is a request that a policy denied, warned about or audited, that passed because of an exception, whose
// object it would have changed, or that it could not evaluate.
type ViolationReport struct {
	Policy string
	// Decision is DecisionDeny, DecisionWarn, DecisionAudit, DecisionExcepted, DecisionPreview or DecisionError.
	Decision Decision
	// Request holds the memory of the objects: a receiver must not keep it, nor Violations.
	Request *admissionv1.AdmissionRequest
	// Violations returns at least one violation.
	Violations func() []Violation
	// Evidence has the keys of the steps of rollouts in which the request counts; see rollout.Effect.
	Evidence []string
}

// reports reports whether the host gets a decision as a violation.
func (h Environment) reports(d Decision) bool {
	if h.Violated == nil {
		return false
	}
	switch d {
	case DecisionError, DecisionDeny, DecisionWarn, DecisionAudit, DecisionExcepted, DecisionPreview:
		return true
	}
	return false
}

// reportResults reports the results of the validating phase.
func (c *Compiled) reportResults(on *subject, decision Decision, results []result, host Environment) {
	report := ViolationReport{Policy: c.name, Decision: decision, Request: on.raw, Violations: func() (out []Violation) {
		return c.violations(on, results, host)
	}}
	for i := range results {
		if r := &results[i]; r.binding.evidence != "" && r.isViolation() && !slices.Contains(report.Evidence, r.binding.evidence) {
			report.Evidence = append(report.Evidence, r.binding.evidence)
		}
	}
	host.Violated(report)
}

// isViolation reports whether a validation is false or fails.
func (r *result) isViolation() bool {
	return r.err != nil || slices.ContainsFunc(r.decisions, func(d validating.PolicyDecision) bool {
		return d.Action == validating.ActionDeny || isError(d)
	})
}

// report reports a step of the mutating phase.
func (s *step) report(decision Decision, host Environment) {
	host.Violated(ViolationReport{Policy: s.policy.name, Decision: decision, Request: s.on.raw, Violations: func() (out []Violation) {
		values := s.policy.reportsValues(s.on, host)
		violation := func(message string) Violation {
			return Violation{
				Decision: decision,
				Message:  truncate.String(message, response.MaxOneMessage),
				Binding:  s.binding.name,
				Template: s.on.template,
			}
		}
		if s.err != nil {
			out = append(out, violation(s.policy.errorText(s.err, values)))
		}
		if len(s.previewed) > 0 {
			out = append(out, violation(s.previewText(values)))
			out[len(out)-1].Decision = DecisionPreview
		}
		if len(out) > 0 {
			return out
		}
		if s.excepted != nil {
			v := violation("an exception leaves out the mutations")
			v.Exception = s.excepted
			return []Violation{v}
		}
		for i := range s.refusals {
			text := s.refusals[i].Message
			if !values {
				text = s.policy.texts.PluginDenial()
			}
			out = append(out, violation(text))
		}
		return out
	}})
}

// violations returns the false validations and the errors of evaluations.
func (c *Compiled) violations(on *subject, results []result, host Environment) (out []Violation) {
	values := c.reportsValues(on, host)
	for i := range results {
		r := &results[i]
		report := func(d Decision, message, validation string) {
			out = append(out, Violation{
				Decision:   d,
				Message:    truncate.String(message, response.MaxOneMessage),
				Binding:    r.binding.name,
				Validation: validation,
				Template:   r.template,
			})
		}
		if r.err != nil {
			report(DecisionError, c.errorText(r.binding.misconfigured(r.err), values), "")
			continue
		}
		for j, d := range r.decisions {
			switch v := r.validation(j); {
			case isError(d):
				text := d.Message
				if !values {
					text = c.texts.DecisionError(j, text)
				}
				report(DecisionError, text, v.name)
			case d.Action == validating.ActionDeny:
				report(r.denied(), c.denialText(on, j, d.Message, values), v.name)
			case v.ratcheted != "":
				report(DecisionRatchet, c.denialText(on, j, d.Message, values), v.name)
			case v.excepted != nil:
				report(DecisionExcepted, c.denialText(on, j, d.Message, values), v.name)
				out[len(out)-1].Exception = v.excepted
			}
		}
		for j, x := range r.annotations {
			if x.Action == validating.AuditAnnotationActionError {
				text := x.Error
				if !values {
					text = c.texts.AnnotationError(j, text)
				}
				report(DecisionError, text, "")
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

// reportsValues reports whether violations of a request may hold values of the objects that the policy reads.
func (c *Compiled) reportsValues(on *subject, host Environment) bool {
	permitted := func(resource metav1.GroupVersionResource, subresource string) bool {
		return host.ReportsValues(schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, subresource)
	}
	if host.ReportsValues == nil || !permitted(on.raw.Resource, on.raw.SubResource) {
		return false
	}
	if _, resource, subresource := requested(on.raw); !permitted(resource, subresource) {
		return false
	}
	core := func(resource corev1.ResourceName) bool {
		return host.ReportsValues(schema.GroupResource{Resource: string(resource)}, "")
	}
	return (on.template == "" || core(corev1.ResourcePods)) && (!c.reads.namespace || core("namespaces")) && c.reportsParams(host)
}

// reportsParams reports whether violations may hold values of params. It returns false if their resource is not known.
func (c *Compiled) reportsParams(host Environment) bool {
	if c.paramKind == nil {
		return true
	}
	if host.Kinds == nil {
		return false
	}
	resources, err := host.Kinds.ResourcesOf(schema.FromAPIVersionAndKind(c.paramKind.APIVersion, c.paramKind.Kind))
	if err != nil || len(resources) == 0 {
		return false
	}
	for _, resource := range resources {
		if !host.ReportsValues(resource.GroupResource(), "") {
			return false
		}
	}
	return true
}

// denialText describes a false validation, with the message of its decision if values are permitted.
func (c *Compiled) denialText(on *subject, index int, message string, values bool) string {
	switch {
	case values:
		return message
	case on.unreadable != nil:
		return "the object cannot be read at " + on.unreadable.What
	}
	return c.texts.Denial(index)
}

// errorText describes an error of an evaluation, with its text if values are permitted.
func (c *Compiled) errorText(err error, values bool) string {
	if values {
		return err.Error()
	}
	return c.texts.Error(err)
}
