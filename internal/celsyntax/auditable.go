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

// Audit says how a policy is evaluated on stored objects.
type Audit struct {
	// Unauditable is why it cannot be evaluated as an update that changes nothing and as a
	// creation, by an anonymous user; "" if it can.
	Unauditable string
	// ReadsOperation means that an expression reads request.operation.
	ReadsOperation bool
	// OnlyUpdates has the validations that are not evaluated as a creation, because they read a
	// field that only controllers and subresources set; nil for none.
	OnlyUpdates []bool
}

// assignedField is one that only the scheduler sets. A stored Pod has it, and one that is created
// again has it later. Ephemeral containers are not like it: policies read them together with
// other containers, and no Pod is created with them.
const assignedField = "nodeName"

// AuditOf returns how a policy is evaluated on stored objects.
func AuditOf(spec *v1alpha1.WebhookPolicySpec, parsed Trees) Audit {
	a := newAuditability(spec, parsed)
	out := Audit{Unauditable: a.unauditable(spec)}
	for _, text := range Expressions(spec) {
		out.ReadsOperation = out.ReadsOperation || a.factsOf(text).operation
	}
	isAssigned := false
	for _, v := range spec.Validations {
		reads := a.factsOf(v.Expression).assigned
		isAssigned = isAssigned || reads
		out.OnlyUpdates = append(out.OnlyUpdates, reads)
	}
	if !isAssigned {
		out.OnlyUpdates = nil
	}
	return out
}

func (a auditability) unauditable(spec *v1alpha1.WebhookPolicySpec) string {
	switch {
	case spec.Backend != nil:
		return "an external webhook decides"
	case spec.Plugin != nil:
		return "an admission plugin decides"
	case len(spec.Validations) == 0:
		return "it has no validations"
	}
	creates := matchesStored(spec, admissionregistrationv1.Create)
	if !creates && !matchesStored(spec, admissionregistrationv1.Update) {
		return "its rules match only " + otherMatches(spec) + ", and stored objects are evaluated as a CREATE and an UPDATE of whole objects"
	}
	for path, text := range Expressions(spec) {
		if strings.HasPrefix(path.String(), "spec.mutations[") {
			continue
		}
		f := a.factsOf(text)
		switch {
		case f.why != "":
			return path.String() + " " + f.why
		case f.compares && !creates:
			return path.String() + " compares oldObject with object, which an update that changes nothing does not change"
		}
	}
	return ""
}

// matchesStored reports whether the policy is evaluated on an operation on whole objects, or
// on workloads with pod templates.
func matchesStored(spec *v1alpha1.WebhookPolicySpec, operation admissionregistrationv1.OperationType) bool {
	if t := spec.TemplateSpec(); t != nil && matchesStored(t, operation) {
		return true
	}
	return spec.MatchConstraints != nil && slices.ContainsFunc(spec.MatchConstraints.ResourceRules,
		func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			matches := func(o admissionregistrationv1.OperationType) bool {
				return o == operation || o == admissionregistrationv1.OperationAll
			}
			return slices.ContainsFunc(r.Operations, matches) && slices.ContainsFunc(r.Resources, isOfObjects)
		})
}

// isOfObjects reports whether an entry of a rule matches whole objects. As in API servers,
// pods/* matches Pods too.
func isOfObjects(entry string) bool {
	return !strings.Contains(entry, "/") || strings.HasSuffix(entry, "/*")
}

// otherMatches names what rules match that match neither a CREATE nor an UPDATE of whole
// objects.
func otherMatches(spec *v1alpha1.WebhookPolicySpec) string {
	if spec.MatchConstraints == nil {
		return "nothing"
	}
	var operations []string
	for _, r := range spec.MatchConstraints.ResourceRules {
		if !slices.ContainsFunc(r.Resources, isOfObjects) {
			continue
		}
		for _, o := range r.Operations {
			operations = append(operations, string(o))
		}
	}
	if len(operations) == 0 {
		return "subresources"
	}
	slices.Sort(operations)
	return strings.Join(slices.Compact(operations), " and ")
}

// auditability examines the expressions of one policy. It also examines dead parts of
// expressions: it rather excludes a policy than reports wrong results.
type auditability struct {
	parsed    Trees
	variables map[string]facts // of those above the current expression
	lookups   map[string]facts // of the keys of requests
}

func newAuditability(spec *v1alpha1.WebhookPolicySpec, parsed Trees) auditability {
	a := auditability{parsed: parsed, variables: map[string]facts{}, lookups: map[string]facts{}}
	a.addVariables(spec)
	if len(spec.Lookups) > 0 { // variables can read lookups, whose keys can read other variables
		for _, l := range spec.Lookups {
			a.lookups[l.Name] = a.factsOf(l.RequestKeys)
		}
		a.addVariables(spec)
	}
	return a
}

func (a auditability) addVariables(spec *v1alpha1.WebhookPolicySpec) {
	for _, v := range spec.Variables {
		a.variables[v.Name] = a.factsOf(v.Expression)
	}
}

// facts are what an expression reads.
type facts struct {
	object, oldObject bool
	compares          bool   // both
	assigned          bool   // a field that only controllers and subresources set, also by variables
	operation         bool   // request.operation, also by variables
	why               string // not auditable
	ofRequest         string // the first fact about the client or the call, also by variables
}

func (f facts) with(o facts) facts {
	return facts{
		object: f.object || o.object, oldObject: f.oldObject || o.oldObject, compares: f.compares || o.compares,
		assigned: f.assigned || o.assigned, operation: f.operation || o.operation,
		why: cmp.Or(f.why, o.why), ofRequest: cmp.Or(f.ofRequest, o.ofRequest),
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
	operand, name, selects := selectedField(e)
	if selects && name == assignedField {
		out := a.visit(operand)
		out.assigned = true
		return out
	}
	if selects && operand.Kind() == ast.IdentKind {
		switch strings.TrimPrefix(operand.AsIdent(), ".") {
		case celplugin.RequestVarName:
			return requestFacts(name)
		case celplugin.VariableVarName:
			known := a.variables[name]
			known.why, known.compares = "", false // its own expression has the reason
			return known
		case LookupsVarName:
			known := a.lookups[name]
			known.why, known.compares = "", false
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

func requestFacts(field string) facts {
	switch field {
	case "userInfo":
		return facts{why: "reads request.userInfo", ofRequest: "request.userInfo"}
	case "options", "dryRun", "uid":
		return facts{ofRequest: "request." + field}
	case "operation":
		return facts{operation: true}
	}
	return facts{}
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
		return facts{why: "reads the whole request, which includes request.userInfo", ofRequest: "the whole request, which includes request.userInfo"}
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
			out.compares = out.compares || f.object && o.oldObject || f.oldObject && o.object
		}
	}
	for _, f := range parts {
		out = out.with(f)
	}
	return out
}
