package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Explanation says why policies decide as they do about a request.
type Explanation struct {
	Request  string              `json:"request"`
	Policies []PolicyExplanation `json:"policies"`
	// Pods explains the Pods that the controller of a workload creates.
	Pods *Explanation `json:"pods,omitempty"`
}

// PolicyExplanation explains one policy.
type PolicyExplanation struct {
	Policy string `json:"policy"`
	// Operation is that of the request for a stored object; empty if no request matches.
	Operation  string            `json:"operation,omitempty"`
	Decision   policy.Decision   `json:"decision"`
	Why        []string          `json:"why,omitempty"`
	Bindings   []BindingResult   `json:"bindings,omitempty"`
	Exceptions []ExceptionResult `json:"exceptions,omitempty"`
	Lookups    []LookupResult    `json:"lookups,omitempty"`
	Parts      []ExpressionTree  `json:"expressions,omitempty"`
	// Cost is that of all expressions; Budget is the limit for the validations, and for
	// the mutations, of one binding.
	Cost   uint64 `json:"cost"`
	Budget uint64 `json:"budget"`
}

// BindingResult is the result of one binding with one param.
type BindingResult struct {
	Binding string `json:"binding"`
	Param   string `json:"param,omitempty"`
	// Template is the path of the pod template, empty for the object itself.
	Template string `json:"template,omitempty"`
	Result   string `json:"result"`
}

// ExceptionResult says whether an exception lets something of the policy pass.
type ExceptionResult struct {
	Exception string `json:"exception"`
	// Validation is the name of the validation, or its path, or that of the mutations or plugin.
	Validation string `json:"validation"`
	// Template is the path of the pod template, empty for the object itself.
	Template string `json:"template,omitempty"`
	Result   string `json:"result"`
}

// ExpressionTree is an expression with its parts.
type ExpressionTree struct {
	Field string `json:"field"`
	// Validation is the name of the validation, empty without one.
	Validation string `json:"validation,omitempty"`
	// Stored reports that the object is the stored one, for ratchet.
	Stored bool `json:"stored,omitempty"`

	// Cost is that of one evaluation.
	Cost uint64 `json:"cost"`
	// Times is the number of evaluations with this result; absent for one. Validations,
	// messageExpressions and audit annotations each evaluate the variables that they read.
	Times int   `json:"times,omitempty"`
	Tree  *Node `json:"tree"`
}

// Recorder keeps what policies evaluate for one request.
type Recorder struct {
	evaluated []policy.Evaluated
	invoked   []policy.Invoked
	tried     []policy.TriedException
	lookedUp  []policy.LookedUp
}

// Trace returns the trace that fills the recorder.
func (r *Recorder) Trace() policy.Trace {
	return policy.Trace{
		Expression: func(e policy.Evaluated) { r.evaluated = append(r.evaluated, e) },
		Invocation: func(i policy.Invoked) { r.invoked = append(r.invoked, i) },
		Exception:  func(x policy.TriedException) { r.tried = append(r.tried, x) },
		Lookup:     func(l policy.LookedUp) { r.lookedUp = append(r.lookedUp, l) },
	}
}

// Why returns, for each validation and match condition that was false, the parts that made
// it false, and every expression that failed.
func (r *Recorder) Why(engine *offline.Engine) (out []string) {
	for _, e := range r.evaluated {
		p := engine.Policy(e.Policy)
		if p == nil || strings.HasSuffix(e.Field, ".messageExpression") {
			continue
		}
		for _, reason := range reasons(engine.Compiler, expressionAt(&p.Spec, e.Field), e) {
			if line := fmt.Sprintf("%s %s: %s", e.Policy, labelOf(&p.Spec, e), reason); !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
	}
	for _, x := range r.tried {
		if x.Mismatch != "" {
			out = append(out, fmt.Sprintf("%s %s: the exception %s has no effect: %s",
				x.Policy, label(x.Validation, x.Template, false), x.Exception, x.Mismatch))
		}
	}
	return out
}

// Values returns the values of all validations and match conditions.
func (r *Recorder) Values() (out []string) {
	for _, e := range r.evaluated {
		if e.Err != nil || !strings.HasSuffix(e.Field, ".expression") || !strings.HasPrefix(e.Field, "spec.validations") && !strings.HasPrefix(e.Field, "spec.matchConditions") {
			continue
		}
		if line := fmt.Sprintf("%s %s is %v", e.Policy, e.Field, e.Value.Value()); !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// reasons returns why an expression prevents a request, or nothing.
func reasons(compiler *policy.Compiler, expression string, e policy.Evaluated) (out []string) {
	if e.Err != nil {
		return []string{"error: " + e.Err.Error()}
	}
	if !strings.HasPrefix(e.Field, "spec.validations") && !strings.HasPrefix(e.Field, "spec.matchConditions") {
		return nil
	}
	root, err := newTree(compiler, expression, e)
	if err != nil { // it compiled before
		return nil
	}
	for _, n := range root.Blame() {
		out = append(out, n.Describe())
	}
	return out
}

// Explain evaluates a request and explains the decisions of the named policies.
func Explain(ctx context.Context, engine *offline.Engine, world *offline.World, request *admissionv1.AdmissionRequest, names []string) (*Explanation, error) {
	var r Recorder
	result, err := engine.Evaluate(policy.WithTrace(ctx, r.Trace()), request, world, offline.Options{})
	if err != nil {
		return nil, err
	}
	out := &Explanation{Request: describe(request)}
	for _, name := range names {
		e := PolicyExplanation{Policy: name, Decision: policy.DecisionUnmatched, Budget: celconfig.RuntimeCELCostBudget}
		for _, o := range result.Outcomes {
			if o.Policy == name {
				e.Decision = o.Decision
			}
			if o.Policy == name && o.Err != nil {
				e.Why = append(e.Why, o.Err.Error())
			}
		}
		if err := e.add(engine, &r, engine.Policy(name)); err != nil {
			return nil, err
		}
		if len(e.Bindings) == 0 && e.Decision == policy.DecisionUnmatched {
			why, err := engine.Mismatch(ctx, name, request, world)
			if err != nil {
				return nil, err
			}
			if why == "" && !result.Allowed {
				why = "another policy denies the request before this one is called"
			}
			e.Why = append(e.Why, cmp.Or(why, "no binding applies to the request"))
		}
		out.Policies = append(out.Policies, e)
	}
	return out, nil
}

func describe(r *admissionv1.AdmissionRequest) string {
	name := r.Name
	if r.Namespace != "" && r.Resource.Resource != "namespaces" {
		name = r.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %s by %s", r.Operation, r.Kind.Kind, name, r.UserInfo.Username)
}

// add adds what was recorded about a policy.
func (e *PolicyExplanation) add(engine *offline.Engine, r *Recorder, p *v1alpha1.WebhookPolicy) error {
	for _, i := range r.invoked {
		if i.Policy == e.Policy {
			e.Bindings = append(e.Bindings, bindingResult(i))
		}
	}
	for _, x := range r.tried {
		if x.Policy == e.Policy {
			e.Exceptions = append(e.Exceptions, exceptionResult(x))
		}
	}
	for _, l := range r.lookedUp {
		if l.Policy == e.Policy {
			e.Lookups = append(e.Lookups, lookupResult(l))
		}
	}
	for _, v := range r.evaluated {
		if v.Policy != e.Policy || hidesKeys(&p.Spec, v.Field) {
			continue
		}
		root, err := newTree(engine.Compiler, expressionAt(&p.Spec, v.Field), v)
		if err != nil {
			return err
		}
		e.Cost += v.Cost
		e.addPart(ExpressionTree{Field: v.Field, Validation: validationOf(&p.Spec, v.Field), Stored: v.Stored, Cost: v.Cost, Tree: root})
	}
	own := Recorder{evaluated: slices.DeleteFunc(slices.Clone(r.evaluated), func(v policy.Evaluated) bool { return v.Policy != e.Policy })}
	e.Why = append(e.Why, own.Why(engine)...)
	return nil
}

// addPart adds an expression, or counts an evaluation of a variable with a known result.
func (e *PolicyExplanation) addPart(part ExpressionTree) {
	known := slices.IndexFunc(e.Parts, func(o ExpressionTree) bool {
		return strings.HasPrefix(part.Field, "spec.variables[") && o.Field == part.Field && o.Stored == part.Stored && o.Cost == part.Cost && o.Tree.equal(part.Tree)
	})
	if known < 0 {
		e.Parts = append(e.Parts, part)
		return
	}
	e.Parts[known].Times = max(e.Parts[known].Times, 1) + 1
}

// allowed is the result of a binding without an effect.
const allowed = "allowed"

func bindingResult(i policy.Invoked) BindingResult {
	out := BindingResult{Binding: i.Binding, Template: i.Template}
	if o, ok := i.Param.(metav1.Object); ok {
		out.Param = strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
	}
	var messages, passed, excepted []string
	for _, d := range i.Decisions {
		if d.Denied || d.Failed {
			messages = append(messages, named(d))
		}
		if d.Ratcheted {
			passed = append(passed, named(d))
		}
		if d.Excepted != "" {
			excepted = append(excepted, named(d)+" (exception "+d.Excepted+")")
		}
	}
	switch {
	case i.Err != nil:
		out.Result = "error: " + i.Err.Error()
	case i.Skipped:
		out.Result = "a match condition is false"
	case len(messages) > 0:
		actions := make([]string, len(i.Actions))
		for n, a := range i.Actions {
			actions[n] = string(a)
		}
		out.Result = strings.Join(append(actions, strings.Join(messages, "; ")), ": ")
	case len(passed) > 0:
		out.Result = "allowed, because the stored object fails too: " + strings.Join(passed, "; ")
	case len(excepted) > 0:
		out.Result = "allowed by an exception: " + strings.Join(excepted, "; ")
	case i.Excepted != "":
		out.Result = "not changed, because of the exception " + i.Excepted
	default:
		out.Result = changeResult(i)
	}
	return out
}

// changeResult says what mutations do with the object.
func changeResult(i policy.Invoked) string {
	switch {
	case i.Previewed != "":
		return "would change the object, and only previews it: " + i.Previewed
	case i.Changed:
		return "changed the object"
	}
	return allowed
}

func exceptionResult(x policy.TriedException) ExceptionResult {
	return ExceptionResult{
		Exception: x.Exception.String(), Validation: x.Validation, Template: x.Template,
		Result: cmp.Or(x.Mismatch, "lets the request pass"),
	}
}

// named returns the message of a decision after the name of its validation.
func named(d policy.TracedDecision) string {
	if d.Validation == "" {
		return d.Message
	}
	return d.Validation + ": " + d.Message
}

// labelOf returns the field of an expression, with the name of its validation.
func labelOf(spec *v1alpha1.WebhookPolicySpec, e policy.Evaluated) string {
	return label(e.Field, validationOf(spec, e.Field), e.Stored)
}

func label(field, validation string, stored bool) string {
	if validation != "" {
		field += " (" + validation + ")"
	}
	if stored {
		field += " of the stored object"
	}
	return field
}

// validationOf returns the name of the validation of a field of a trace.
func validationOf(spec *v1alpha1.WebhookPolicySpec, field string) string {
	var i int
	if _, err := fmt.Sscanf(field, "spec.validations[%d]", &i); err != nil || i < 0 || i >= len(spec.Validations) {
		return ""
	}
	return spec.Validations[i].Name
}

// expressionAt returns the expression of a field of a trace.
func expressionAt(spec *v1alpha1.WebhookPolicySpec, field string) string {
	rest, ok := strings.CutPrefix(field, "spec.")
	open, end := strings.IndexByte(rest, '['), strings.IndexByte(rest, ']')
	if !ok || open < 0 || end < open {
		return ""
	}
	var i int
	if _, err := fmt.Sscan(rest[open+1:end], &i); err != nil {
		return ""
	}
	all := map[string][]string{}
	for _, v := range spec.Variables {
		all["variables"] = append(all["variables"], v.Expression)
	}
	for i := range spec.Lookups {
		all["lookups"] = append(all["lookups"], spec.Lookups[i].RequestKeys)
	}
	for _, c := range spec.MatchConditions {
		all["matchConditions"] = append(all["matchConditions"], c.Expression)
	}
	for _, v := range spec.Validations {
		all["validations"] = append(all["validations"], v.Expression)
		all["messages"] = append(all["messages"], v.MessageExpression)
	}
	for _, a := range spec.AuditAnnotations {
		all["auditAnnotations"] = append(all["auditAnnotations"], a.ValueExpression)
	}
	for _, m := range spec.Mutations {
		all["mutations"] = append(all["mutations"], mutationOf(m))
	}
	kind := rest[:open]
	if strings.HasSuffix(rest, ".messageExpression") {
		kind = "messages"
	}
	if i < 0 || i >= len(all[kind]) {
		return ""
	}
	return all[kind][i]
}

func mutationOf(m admissionregistrationv1.Mutation) string {
	switch {
	case m.JSONPatch != nil:
		return m.JSONPatch.Expression
	case m.ApplyConfiguration != nil:
		return m.ApplyConfiguration.Expression
	}
	return ""
}
