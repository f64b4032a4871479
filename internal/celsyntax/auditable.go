package celsyntax

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Unauditable returns why a policy cannot be evaluated on stored objects as an update that changes nothing by an
// anonymous user. It returns "" if the policy can.
func Unauditable(spec *v1alpha1.WebhookPolicySpec, parsed Trees) string {
	switch {
	case spec.Backend != nil:
		return "an external webhook decides"
	case spec.Plugin != nil:
		return "an admission plugin decides"
	case len(spec.Validations) == 0:
		return "it has no validations"
	case !matchesUpdates(spec):
		return "its rules match no UPDATE of whole objects, and stored objects are evaluated as updates"
	}
	a := newAuditability(spec, parsed)
	for path, text := range Expressions(spec) {
		if strings.HasPrefix(path.String(), "spec.mutations[") {
			continue
		}
		if f := a.factsOf(text); f.why != "" {
			return path.String() + " " + f.why
		}
	}
	return ""
}

// matchesUpdates reports whether the policy is evaluated on updates of whole objects, or
// of workloads with pod templates.
func matchesUpdates(spec *v1alpha1.WebhookPolicySpec) bool {
	if spec.TemplateSpec() != nil {
		return true
	}
	return spec.MatchConstraints != nil && slices.ContainsFunc(spec.MatchConstraints.ResourceRules, matchesUpdate)
}

func matchesUpdate(rule admissionregistrationv1.NamedRuleWithOperations) bool {
	updates := slices.ContainsFunc(rule.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o == admissionregistrationv1.Update || o == admissionregistrationv1.OperationAll
	})
	return updates && slices.ContainsFunc(rule.Resources, func(entry string) bool {
		return !strings.Contains(entry, "/") || strings.HasSuffix(entry, "/*")
	})
}

// auditability examines the expressions of one policy. It also examines dead parts of
// expressions: it rather excludes a policy than reports wrong results.
type auditability struct {
	parsed    Trees
	variables map[string]facts // of those above the current expression
}

func newAuditability(spec *v1alpha1.WebhookPolicySpec, parsed Trees) auditability {
	a := auditability{parsed: parsed, variables: map[string]facts{}}
	for _, v := range spec.Variables {
		a.variables[v.Name] = a.factsOf(v.Expression)
	}
	return a
}

// facts are what an expression reads.
type facts struct {
	object, oldObject bool
	why               string // not auditable
	ofRequest         string // the first fact about the client or the call, also by variables
}

func (f facts) with(o facts) facts {
	return facts{
		object:    f.object || o.object,
		oldObject: f.oldObject || o.oldObject,
		why:       cmp.Or(f.why, o.why),
		ofRequest: cmp.Or(f.ofRequest, o.ofRequest),
	}
}

func (a auditability) factsOf(expression string) facts {
	parsed := a.parsed[expression]
	if parsed == nil {
		return facts{} // it does not compile
	}
	return a.visit(parsed.NativeRep().Expr())
}

func (a auditability) visit(e ast.Expr) facts {
	if operand, name, ok := selectedField(e); ok && operand.Kind() == ast.IdentKind {
		switch strings.TrimPrefix(operand.AsIdent(), ".") {
		case celplugin.RequestVarName:
			switch name {
			case "userInfo":
				return facts{why: "reads request.userInfo", ofRequest: "request.userInfo"}
			case "options", "dryRun", "uid":
				return facts{ofRequest: "request." + name}
			}
			return facts{}
		case celplugin.VariableVarName:
			known := a.variables[name]
			known.why = "" // its own expression has the reason
			return known
		}
	}
	switch e.Kind() {
	case ast.IdentKind:
		return identFacts(strings.TrimPrefix(e.AsIdent(), "."))
	case ast.SelectKind:
		return a.visit(e.AsSelect().Operand())
	case ast.CallKind:
		return a.visitCall(e.AsCall())
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		body := a.visit(c.LoopCondition()).with(a.visit(c.LoopStep())).with(a.visit(c.Result()))
		return compared(a.visit(c.IterRange()), a.visit(c.AccuInit()), body)
	}
	var parts []facts
	for _, child := range ast.NavigateExpr(nil, e).Children() {
		parts = append(parts, a.visit(child))
	}
	return compared(parts...)
}

func identFacts(name string) facts {
	switch name {
	case celplugin.ObjectVarName:
		return facts{object: true}
	case celplugin.OldObjectVarName:
		return facts{oldObject: true}
	case celplugin.AuthorizerVarName, celplugin.RequestResourceAuthorizerVarName:
		return facts{why: "reads authorizer", ofRequest: "authorizer"}
	case celplugin.RequestVarName:
		const whole = "the whole request, which includes request.userInfo"
		return facts{why: "reads " + whole, ofRequest: whole}
	}
	return facts{}
}

func (a auditability) visitCall(c ast.CallExpr) facts {
	var parts []facts
	if c.IsMemberFunction() {
		parts = append(parts, a.visit(c.Target()))
	}
	for _, arg := range c.Args() {
		parts = append(parts, a.visit(arg))
	}
	switch c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse, operators.Conditional:
		var out facts
		for _, f := range parts {
			out = out.with(f)
		}
		return out
	}
	return compared(parts...)
}

// compared returns the facts of an expression whose value depends on several others
// together.
func compared(parts ...facts) facts {
	var out facts
	for i, f := range parts {
		for _, o := range parts[i+1:] {
			if f.object && o.oldObject || f.oldObject && o.object {
				out.why = "compares oldObject with object, which an update that changes nothing does not change"
			}
		}
	}
	for _, f := range parts {
		out = out.with(f)
	}
	return out
}
