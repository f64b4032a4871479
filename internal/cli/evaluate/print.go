package evaluate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/report"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Evaluation is the result for one object.
type Evaluation struct {
	Object    string        `json:"object"`
	Namespace string        `json:"namespace,omitempty"`
	Position  load.Position `json:"position"`
	Operation string        `json:"operation"`
	Allowed   bool          `json:"allowed"`
	Decisions []Decision    `json:"decisions"`
	Warnings  []string      `json:"warnings,omitempty"`
	// AuditAnnotations are without the name of the webhook, which the API server adds.
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
	// Mutated is the object after mutations, if they change it.
	Mutated json.RawMessage `json:"mutated,omitempty"`

	diff string
}

// Decision is that of one policy in one phase.
type Decision struct {
	Policy   string          `json:"policy"`
	Phase    string          `json:"phase"`
	Decision policy.Decision `json:"decision"`
	Messages []string        `json:"messages,omitempty"`
}

// print writes the evaluations. The error tells whether an object is denied.
func (c *command) print(evaluations []Evaluation, policies int, skipped []error) error {
	all := []Evaluation{}
	denied := 0
	counts := map[policy.Decision]int{}
	for _, e := range evaluations {
		if !e.Allowed {
			denied++
		}
		for _, d := range e.Decisions {
			counts[d.Decision]++
		}
		if len(e.Decisions) > 0 {
			all = append(all, e)
		}
	}
	failed := counts[policy.DecisionError]
	summary := fmt.Sprintf("%s, %s: %s denied, %s", output.Count(len(evaluations), "object", "objects"), output.Count(policies, "policy", "policies"),
		output.Count(denied, "object", "objects"), output.Count(failed, "error", "errors")) + output.Passed(counts[policy.DecisionWarn], counts[policy.DecisionAudit])
	if n := counts[offline.DecisionNotEvaluated]; n > 0 {
		summary += fmt.Sprintf(", %d not evaluated", n)
	}
	r := reportOf(all, summary, skipped)
	if err := errors.Join(c.write(all, r), c.reports.WriteHTML(c.Options, r)); err != nil {
		return err
	}
	if denied+failed > 0 {
		return &output.FindingsError{Text: summary}
	}
	_, err := fmt.Fprintln(c.ErrOut, summary)
	return err
}

// evaluation returns the result for one object with the decisions to be printed.
func (c *command) evaluation(o *load.Object, request *admissionv1.AdmissionRequest, r *offline.Result) Evaluation {
	e := Evaluation{
		Object: o.String(), Namespace: request.Namespace, Operation: string(request.Operation),
		Allowed: r.Allowed, Warnings: r.Warnings, AuditAnnotations: r.AuditAnnotations,
	}
	for i := range r.Outcomes {
		outcome := &r.Outcomes[i]
		if d := outcome.Decision; c.all || d != policy.DecisionAllow && d != policy.DecisionSkip && d != policy.DecisionUnmatched {
			e.Decisions = append(e.Decisions, Decision{
				Policy: outcome.Policy, Phase: string(outcome.Phase), Decision: d, Messages: messagesOf(outcome),
			})
		}
	}
	if len(e.Decisions) == 0 {
		return e // its position takes time
	}
	e.Position = o.At("")
	if r.Changed && r.Allowed {
		e.Mutated = r.Object
		if c.diff && c.Format == output.Table {
			e.diff = output.Diff(o.String(), request.Object.Raw, r.Object)
		}
	}
	return e
}

// messagesOf returns what a policy says, and how a policy is evaluated that is left out.
func messagesOf(o *offline.Outcome) []string {
	out := o.Messages()
	if o.Decision == offline.DecisionNotEvaluated {
		out = append(out, "ask a cluster with --from-cluster, or give the answer in a PolicyTest")
	}
	return out
}

// reportOf returns the findings for a heat map and HTML.
func reportOf(all []Evaluation, summary string, skipped []error) *report.Report {
	out := &report.Report{Title: "What policies decide for objects", Summary: summary, Made: time.Now()}
	for _, e := range all {
		for _, d := range e.Decisions {
			out.Findings = append(out.Findings, report.Finding{
				Policy: d.Policy, Namespace: e.Namespace, Object: e.Object, Decision: string(d.Decision), Message: strings.Join(d.Messages, "; "),
			})
		}
	}
	for _, problem := range skipped {
		out.Notes = append(out.Notes, problem.Error())
	}
	return out
}

func (c *command) write(all []Evaluation, r *report.Report) error {
	switch {
	case c.reports.IsHeatMap():
		return r.WriteHeatMap(c.Out)
	case c.summary:
		return c.writeSummary(summaryOf(all))
	case c.Format != output.Table:
		return c.Print(all)
	}
	var rows [][]string
	style := output.Colored(c.Out)
	for _, e := range all {
		for _, d := range e.Decisions {
			rows = append(rows, []string{e.Object, d.Policy, string(d.Decision), strings.Join(d.Messages, "; ")})
		}
	}
	if err := output.WriteTable(c.Out, []string{"OBJECT", "POLICY", "DECISION", "MESSAGE"}, rows); err != nil {
		return err
	}
	for _, e := range all {
		if e.diff == "" {
			continue
		}
		if _, err := fmt.Fprint(c.Out, "\n", output.PaintDiff(style, e.diff)); err != nil {
			return fmt.Errorf("writing the difference: %w", err)
		}
	}
	if height := output.Height(c.Out); height > 0 && len(rows) > height { // the table is no longer in sight
		_, _ = fmt.Fprintln(c.Out) // the next line returns the error
		return r.WriteHeatMap(c.Out)
	}
	return nil
}
