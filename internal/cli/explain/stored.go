package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// stored explains the decisions about an object of the cluster, as TYPE/NAME. Of each policy
// it explains the first operation that the policy matches.
func (c *command) stored(ctx context.Context, s *inputs.Setting, target string, names []string) (*Explanation, error) {
	resource, name, _ := strings.Cut(target, "/")
	if resource == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q is not an object: write TYPE/NAME, such as pod/web-0", target)
	}
	u, err := s.Cluster.Get(ctx, resource, s.Engine.APIs.DefaultNamespace, name)
	if err != nil {
		return nil, err
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", target, err)
	}
	object, err := load.FromJSON("cluster:"+target, raw)
	if err != nil {
		return nil, err
	}
	requests, err := c.requestsFor(object, s)
	if err != nil {
		return nil, err
	}
	out := &Explanation{Request: fmt.Sprintf("%s as it is stored, by %s", object, requests[0].UserInfo.Username)}
	for _, request := range requests {
		e, err := Explain(ctx, s.Engine, s.World, request, names)
		if err != nil {
			return nil, err
		}
		out.complete(e, request.Operation)
	}
	if !c.deleted {
		out.Pods, err = explainPods(ctx, object, s, names)
	}
	return out, err
}

// explainPods explains the Pods of a workload; nil for other objects.
func explainPods(ctx context.Context, object *load.Object, s *inputs.Setting, names []string) (*Explanation, error) {
	request, err := podRequest(object, s.Engine.APIs)
	if request == nil || err != nil {
		return nil, err
	}
	e, err := Explain(ctx, s.Engine, s.World, request, names)
	if err != nil {
		return nil, err
	}
	out := &Explanation{Request: fmt.Sprintf("its Pods, created by %s", request.UserInfo.Username)}
	out.complete(e, request.Operation)
	return out, nil
}

// requestsFor returns the requests for a stored object in the order of their preference.
func (c *command) requestsFor(object *load.Object, s *inputs.Setting) ([]*admissionv1.AdmissionRequest, error) {
	operations := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
	if c.deleted {
		operations = operations[2:]
	}
	var out []*admissionv1.AdmissionRequest
	for _, o := range operations {
		created, old := object, object
		switch o {
		case admissionv1.Create:
			old = nil
		case admissionv1.Delete:
			created = nil
		}
		request, err := s.Engine.APIs.NewRequest(created, old, offline.RequestOptions{User: s.User})
		if err != nil {
			return nil, err
		}
		out = append(out, request)
	}
	return out, nil
}

// complete adds the policies of an explanation, and replaces those that match no request so
// far.
func (e *Explanation) complete(more *Explanation, operation admissionv1.Operation) {
	for _, p := range more.Policies {
		matched := len(p.Bindings) > 0 || p.Decision != policy.DecisionUnmatched
		if matched {
			p.Operation = string(operation)
		}
		i := slices.IndexFunc(e.Policies, func(o PolicyExplanation) bool { return o.Policy == p.Policy })
		switch {
		case i < 0:
			e.Policies = append(e.Policies, p)
		case matched && e.Policies[i].Operation == "":
			e.Policies[i] = p
		}
	}
}

// writeSummary writes a line for each policy, denials first.
func (c *command) writeSummary(e *Explanation) error {
	head := e.Request
	if denied := e.denying(); len(denied) > 0 {
		head += ": denied by " + output.Some(denied)
	}
	if _, err := fmt.Fprintf(c.Out, "%s\n\n", output.Wrap(c.Out, output.Printable(head))); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}
	order := policy.Decisions()
	sorted := slices.Clone(e.Policies)
	slices.SortStableFunc(sorted, func(a, b PolicyExplanation) int {
		return cmp.Compare(slices.Index(order, a.Decision), slices.Index(order, b.Decision))
	})
	var rows [][]string
	hidden := 0
	for i := range sorted {
		p := &sorted[i]
		if p.Operation == "" && !c.all {
			hidden++
			continue
		}
		operation := p.Operation
		if operation == "" {
			operation = "-"
		}
		row := []string{p.Policy, operation, string(p.Decision), p.reason()}
		if c.Format == output.Wide {
			row = slices.Insert(row, 3, p.bindings(), fmt.Sprintf("%d of %d", p.Cost, p.Budget))
		}
		rows = append(rows, row)
	}
	header := []string{"POLICY", "OPERATION", "DECISION", "WHY"}
	if c.Format == output.Wide {
		header = slices.Insert(header, 3, "BINDINGS", "COST")
	}
	if err := output.WriteTable(c.Out, header, rows); err != nil {
		return err
	}
	if hidden > 0 {
		_, _ = fmt.Fprintf(c.Out, "%s not match: --all shows why\n", output.Count(hidden, "policy does", "policies do"))
	}
	if e.Pods == nil {
		return nil
	}
	_, _ = fmt.Fprintln(c.Out)
	return c.writeSummary(e.Pods)
}

// denying returns the names of the policies that deny the request.
func (e *Explanation) denying() (out []string) {
	for _, p := range e.Policies {
		if p.Decision == policy.DecisionDeny {
			out = append(out, p.Policy)
		}
	}
	return out
}

// bindings names the bindings that match, each with its param.
func (e *PolicyExplanation) bindings() string {
	var out []string
	for _, b := range e.Bindings {
		name := cmp.Or(b.Binding, "(default)")
		if b.Param != "" {
			name += " with " + b.Param
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return cmp.Or(strings.Join(out, ", "), "-")
}

// reason is the most important line of an explanation.
func (e *PolicyExplanation) reason() string {
	if e.Decision == policy.DecisionAllow {
		return ""
	}
	for _, b := range e.Bindings {
		if b.Result != allowed && e.Decision != policy.DecisionSkip {
			return b.Result
		}
	}
	if len(e.Why) > 0 {
		return strings.TrimPrefix(e.Why[0], e.Policy+" ")
	}
	return ""
}

// onOperation writes the operation for which a policy is explained.
func onOperation(operation string) string {
	if operation == "" {
		return ""
	}
	return " on " + operation
}
