package policytest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Mutant is a changed policy.
type Mutant struct {
	Policy   string        `json:"policy"`
	Field    string        `json:"field"`
	Position load.Position `json:"position"`
	// Change is the new expression.
	Change string `json:"change"`

	apply func(*v1alpha1.WebhookPolicySpec)
}

// maxMutants bounds the changes of one expression.
const maxMutants = 50

// mutantsOf returns the changes of a policy: each condition and validation negated, made
// constant, or without one of its operands; each lookup without keys; and each mutation, message expression and audit
// annotation without an effect.
func mutantsOf(p *offline.Policy, compiler *policy.Compiler) (out []Mutant) {
	add := func(field, change string, apply func(*v1alpha1.WebhookPolicySpec)) {
		out = append(out, Mutant{Policy: p.Name, Field: field, Position: p.Source.At(field), Change: change, apply: apply})
	}
	for i, c := range p.Spec.MatchConditions {
		for _, change := range variants(c.Expression, compiler) {
			add(fmt.Sprintf("spec.matchConditions[%d].expression", i), change, func(s *v1alpha1.WebhookPolicySpec) { s.MatchConditions[i].Expression = change })
		}
	}
	for i := range p.Spec.Lookups {
		add(fmt.Sprintf("spec.lookups[%d].requestKeys", i), "[]", func(s *v1alpha1.WebhookPolicySpec) { s.Lookups[i].RequestKeys = "[]" })
	}
	for i, v := range p.Spec.Validations {
		for _, change := range variants(v.Expression, compiler) {
			add(fmt.Sprintf("spec.validations[%d].expression", i), change, func(s *v1alpha1.WebhookPolicySpec) { s.Validations[i].Expression = change })
		}
		if v.MessageExpression != "" {
			add(fmt.Sprintf("spec.validations[%d].messageExpression", i), `"changed"`, func(s *v1alpha1.WebhookPolicySpec) { s.Validations[i].MessageExpression = `"changed"` })
		}
	}
	for i := range p.Spec.Mutations {
		if p.Spec.Mutations[i].JSONPatch != nil {
			add(fmt.Sprintf("spec.mutations[%d].jsonPatch.expression", i), "[]", func(s *v1alpha1.WebhookPolicySpec) { s.Mutations[i].JSONPatch.Expression = "[]" })
		} else {
			add(fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", i), "Object{}", func(s *v1alpha1.WebhookPolicySpec) { s.Mutations[i].ApplyConfiguration.Expression = "Object{}" })
		}
	}
	for i := range p.Spec.AuditAnnotations {
		add(fmt.Sprintf("spec.auditAnnotations[%d].valueExpression", i), "null", func(s *v1alpha1.WebhookPolicySpec) { s.AuditAnnotations[i].ValueExpression = "null" })
	}
	return out
}

// variants returns changed forms of a condition.
func variants(expression string, compiler *policy.Compiler) []string {
	out := []string{"!(" + expression + ")", "true", "false"}
	parsed, err := compiler.Parse(expression)
	if err != nil {
		return nil // the policy has been compiled
	}
	out = append(out, dropped(parsed, parsed.NativeRep().Expr())...)
	same := strings.TrimSpace(expression)
	out = slices.DeleteFunc(slices.Compact(out), func(v string) bool { return v == same })
	return out[:min(len(out), maxMutants)]
}

// dropped returns an expression without each operand of its logical operators in turn.
func dropped(parsed *cel.Ast, e ast.Expr) (out []string) {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	sign := map[string]string{operators.LogicalAnd: "&&", operators.LogicalOr: "||"}[call.FunctionName()]
	switch {
	case call.FunctionName() == operators.LogicalNot:
		for _, v := range dropped(parsed, call.Args()[0]) {
			out = append(out, "!("+v+")")
		}
	case sign != "":
		left, right := textOf(parsed, call.Args()[0]), textOf(parsed, call.Args()[1])
		out = append(out, left, right)
		for _, v := range dropped(parsed, call.Args()[0]) {
			out = append(out, fmt.Sprintf("(%s) %s (%s)", v, sign, right))
		}
		for _, v := range dropped(parsed, call.Args()[1]) {
			out = append(out, fmt.Sprintf("(%s) %s (%s)", left, sign, v))
		}
	}
	return out
}

// textOf returns the source of a part of an expression.
func textOf(parsed *cel.Ast, e ast.Expr) string {
	text, err := parser.Unparse(e, parsed.NativeRep().SourceInfo())
	if err != nil { // of an expression that was not parsed
		return "true"
	}
	return text
}

// survivors returns the changes that none of the cases detects, and the number of all
// changes. The cases pass without a change.
func survivors(ctx context.Context, suites []*Suite, cases []*Case, progress *output.Progress) (out []Mutant, total int, err error) {
	type key struct{ policy, position string }
	changes := map[*offline.Policy][]Mutant{}
	done := map[key]bool{}
	var order []*offline.Policy
	for _, s := range suites {
		for i := range s.policies {
			p := &s.policies[i]
			if k := (key{p.Name, p.Source.At("").String()}); !done[k] {
				done[k] = true
				order, changes[p] = append(order, p), mutantsOf(p, s.compiler(policy.LatestEngine))
				total += len(changes[p])
			}
		}
	}
	progress.Begin("trying changes", int64(total))
	for _, p := range order {
		for _, m := range changes[p] {
			found, err := detected(ctx, suites, cases, p, m)
			if err != nil {
				return nil, 0, err
			}
			if !found {
				out = append(out, m)
			}
			progress.Add(1)
		}
	}
	return out, total, nil
}

// detected reports whether one of the cases fails with the change. A change
// that does not compile is detected.
func detected(ctx context.Context, suites []*Suite, cases []*Case, p *offline.Policy, m Mutant) (bool, error) {
	for _, s := range suites {
		at := slices.IndexFunc(s.policies, func(other offline.Policy) bool {
			return other.Name == p.Name && other.Source.At("") == p.Source.At("")
		})
		if at < 0 {
			continue
		}
		changed := slices.Clone(s.policies)
		changed[at].WebhookPolicy = p.DeepCopy()
		m.apply(&changed[at].Spec)
		engines := map[policy.Engine]*offline.Engine{}
		for _, c := range s.Cases {
			if !slices.Contains(cases, c) {
				continue
			}
			if engines[c.Version] == nil {
				made, err := s.newEngine(c.Version, changed)
				if err != nil {
					return true, nil //nolint:nilerr // it does not compile
				}
				engines[c.Version] = made
			}
			problems, _, err := c.check(ctx, engines[c.Version], policy.Trace{}, false)
			if err != nil {
				return false, err
			}
			if len(problems) > 0 {
				return true, nil
			}
		}
	}
	return false, nil
}
