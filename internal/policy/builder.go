package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/podtemplate"
	"github.com/ostiary/ostiary/internal/truncate"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
	"github.com/ostiary/ostiary/internal/violationtext"
)

// builder holds the parts and the errors of a policy during its compilation.
type builder struct {
	policy   *v1alpha1.WebhookPolicy
	compiler *Compiler
	declared celengine.Declared
	lookups  []compiledLookup
	known    celengine.KnownVariables
	programs []*celengine.Program
	errs     field.ErrorList
	hints    map[int]string // by the index in errs
	parsed   celsyntax.Trees

	uncountedTrees map[*uncounted.Expression]*cel.Ast
}

func newBuilder(p *v1alpha1.WebhookPolicy, c *Compiler) *builder {
	return &builder{
		policy:         p,
		compiler:       c,
		hints:          map[int]string{},
		uncountedTrees: map[*uncounted.Expression]*cel.Ast{},
	}
}

// build compiles everything but the variables.
func (b *builder) build() *Compiled {
	c := newCompiled(b.policy, b.parsed)
	c.conditions = b.compiler
	if b.compiler.states != nil { // a trace shows whole values
		c.reads = c.reads.with(inputs{object: unstructuredjson.Everything(), oldObject: unstructuredjson.Everything()})
	}
	matcher := b.matcher()
	results := b.validations()
	c.texts = violationtext.New(&b.policy.Spec, results)
	messageResults := b.messageExpressions()
	annotationResults := b.auditAnnotations()
	validations, messages, annotations := b.evaluator(results), b.evaluator(messageResults), b.evaluator(annotationResults)
	if c.validations = newValidations(b); c.validations != nil {
		validations = followedValidations{
			ConditionEvaluator: validations, ratchets: c.validations.ratchets, compiled: results, declared: b.declared,
		}
	}
	patchers := b.patchers()
	b.checkTemplateMutations()
	err := b.errs.ToAggregate()
	failurePolicy := c.failurePolicy
	c.validator = validating.NewValidator(validations, matcher, annotations, messages, &failurePolicy, errorOf(err))
	c.mutator = mutator{matcher: matcher, patchers: patchers, err: errorOf(err)}
	c.programs, c.lookups = b.programs, b.lookups
	if c.quick = b.quick(c.reads); c.quick != nil {
		c.needsMore = b.needsMore(c.quick, c.reads)
		c.alone = aloneExpressions{
			validations: results, messages: messageResults, annotations: annotationResults, declared: b.declared,
			asks: c.quick.AsksAuthorizer(),
		}
	}
	return c
}

// errorOf returns nil for a nil aggregate, not an interface that holds nil.
func errorOf(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(truncate.String(err.Error(), maxErrorDetail))
}

// The optional variables of each kind of expression are those of the API server: a
// message has no authorizer; an audit annotation has one declared, without a value.
func (b *builder) declarations() celplugin.OptionalVariableDeclarations {
	return celplugin.OptionalVariableDeclarations{HasParams: b.policy.Spec.ParamKind != nil, HasAuthorizer: true}
}

func (b *builder) messageDeclarations() celplugin.OptionalVariableDeclarations {
	return celplugin.OptionalVariableDeclarations{HasParams: b.policy.Spec.ParamKind != nil}
}

func (b *builder) patchDeclarations() celplugin.OptionalVariableDeclarations {
	decls := b.declarations()
	decls.HasPatchTypes = true
	return decls
}

// declareVariables compiles the variables of the policy in order. Each can read those
// before it.
func (b *builder) declareVariables() {
	path := field.NewPath("spec", "variables")
	for i, v := range b.policy.Spec.Variables {
		at := path.Index(i).Child("expression")
		p := b.compiler.counted.Variable(b.known, v.Expression, b.declarations(), b.parsed[v.Expression])
		b.check(at, v.Expression, p.Result, b.declarations())
		if err := celengine.CheckType(p); err != nil {
			b.errs = append(b.errs, field.Invalid(at, truncate.String(v.Expression, maxErrorDetail), err.Error()))
			return // later expressions would be checked with this type
		}
		traced := b.traced(at, p, func(c *celengine.Compiler) *celengine.Program {
			return c.Variable(b.known, v.Expression, b.declarations(), nil)
		})
		b.declared.Variables = append(b.declared.Variables, celengine.Variable{Name: v.Name, Program: traced})
		b.known = b.known.With(v.Name, p)
	}
}

func (b *builder) matcher() matchconditions.Matcher {
	conditions := b.policy.Spec.MatchConditions
	if len(conditions) == 0 {
		return nil
	}
	path := field.NewPath("spec", "matchConditions")
	results := make([]celplugin.CompilationResult, len(conditions))
	for i := range conditions {
		accessor := matchconditions.MatchCondition(conditions[i])
		results[i] = b.expression(path.Index(i).Child("expression"), &accessor, b.declarations())
	}
	// With Ignore the matcher would treat an error as a false condition and hide it. The
	// failurePolicy of the policy decides about this error later, as about any other.
	fail := admissionregistrationv1.Fail
	return matchconditions.NewMatcher(b.evaluator(results), &fail, "policy", "validate", b.policy.Name)
}

func (b *builder) validations() []celplugin.CompilationResult {
	path := field.NewPath("spec", "validations")
	results := make([]celplugin.CompilationResult, len(b.policy.Spec.Validations))
	for i, v := range b.policy.Spec.Validations {
		results[i] = b.expression(path.Index(i).Child("expression"), accessorOf(v), b.declarations())
	}
	return results
}

func accessorOf(v v1alpha1.Validation) *validating.ValidationCondition {
	return &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: copyOf(v.Reason)}
}

// messageExpressions returns nil if no validation has one. Otherwise it returns an entry
// for each validation, because the validator pairs them by index; an entry can be empty.
func (b *builder) messageExpressions() []celplugin.CompilationResult {
	path := field.NewPath("spec", "validations")
	var results []celplugin.CompilationResult
	for i, v := range b.policy.Spec.Validations {
		if v.MessageExpression == "" {
			continue
		}
		if results == nil {
			results = make([]celplugin.CompilationResult, len(b.policy.Spec.Validations))
		}
		accessor := &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		results[i] = b.expression(path.Index(i).Child("messageExpression"), accessor, b.messageDeclarations())
	}
	return results
}

func (b *builder) auditAnnotations() []celplugin.CompilationResult {
	path := field.NewPath("spec", "auditAnnotations")
	results := make([]celplugin.CompilationResult, len(b.policy.Spec.AuditAnnotations))
	for i, a := range b.policy.Spec.AuditAnnotations {
		accessor := &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
		results[i] = b.expression(path.Index(i).Child("valueExpression"), accessor, b.declarations())
	}
	return results
}

func (b *builder) patchers() []patch.Patcher {
	path := field.NewPath("spec", "mutations")
	var patchers []patch.Patcher
	for i, m := range b.policy.Spec.Mutations {
		at := path.Index(i)
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			accessor := &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}
			patchers = append(patchers, patch.NewApplyConfigurationPatcher(b.patcher(at.Child("applyConfiguration", "expression"), accessor)))
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			accessor := &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}
			patchers = append(patchers, patch.NewJSONPatcher(b.patcher(at.Child("jsonPatch", "expression"), accessor)))
		default:
			b.errs = append(b.errs, field.Invalid(at.Child("patchType"), m.PatchType, "set patchType to ApplyConfiguration or JSONPatch, and the field of that name"))
		}
	}
	return patchers
}

func (b *builder) patcher(path *field.Path, accessor celplugin.ExpressionAccessor) celplugin.MutatingEvaluator {
	return celengine.NewMutation(b.expression(path, accessor, b.patchDeclarations()), b.declared)
}

// expression compiles one expression. The accessor of the result belongs to the policy
// even if the program is shared, because the validator reads messages and reasons from
// it.
func (b *builder) expression(
	path *field.Path,
	accessor celplugin.ExpressionAccessor,
	decls celplugin.OptionalVariableDeclarations,
) celplugin.CompilationResult {
	text := accessor.GetExpression()
	p := b.compiler.counted.Expression(b.known, accessor, decls, b.parsed[text])
	b.programs = append(b.programs, p)
	traced := b.traced(path, p, func(c *celengine.Compiler) *celengine.Program {
		return c.Expression(b.known, accessor, decls, nil)
	})
	result := traced.Result
	result.ExpressionAccessor = accessor
	b.check(path, text, result, decls)
	return result
}

func (b *builder) evaluator(results []celplugin.CompilationResult) celplugin.ConditionEvaluator {
	return celengine.NewConditions(results, b.declared)
}

// check adds the error of an expression that does not compile.
func (b *builder) check(
	path *field.Path,
	expression string,
	result celplugin.CompilationResult,
	decls celplugin.OptionalVariableDeclarations,
) {
	if result.Error == nil {
		return
	}
	var names []string
	for _, v := range b.policy.Spec.Variables {
		names = append(names, v.Name)
	}
	if hint := b.compiler.counted.Hint(expression, decls, b.known, names); hint != "" {
		b.hints[len(b.errs)] = hint
	}
	detail := truncate.String(result.Error.Detail, maxErrorDetail)
	b.errs = append(b.errs, field.Invalid(path, truncate.String(expression, maxErrorDetail), detail))
}

// hinted returns the errors with hints before the messages of the compiler. Responses to
// requests have no hints, like those of the API server.
func (b *builder) hinted() field.ErrorList {
	out := slices.Clone(b.errs)
	for i, hint := range b.hints {
		found := *out[i]
		found.Detail = hint + ": " + found.Detail
		out[i] = &found
	}
	return out
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// quick returns the expressions that a batch can evaluate without counting their costs; nil for a policy that it cannot
// evaluate, or whose costs have no bounds.
func (b *builder) quick(reads inputs) *uncounted.Policy {
	if b.unsuitable(reads) != "" {
		return nil
	}
	q := b.uncounted()
	if b.readsElsewhere(q) != "" || !b.bound(q) {
		return nil
	}
	return q
}

func (b *builder) bound(q *uncounted.Policy) bool {
	return b.compiler.uncounted.Bound(q, func(e *uncounted.Expression) *cel.Ast { return b.uncountedTrees[e] })
}

func (b *builder) uncountedExpression(text string) *uncounted.Expression {
	e := b.compiler.uncounted.Compile(text, b.parsed[text])
	b.uncountedTrees[e] = b.parsed[text]
	return e
}

// uncounted returns the expressions of the policy without counters.
func (b *builder) uncounted() *uncounted.Policy {
	spec := &b.policy.Spec
	q := &uncounted.Policy{}
	for _, v := range spec.Variables {
		q.AddVariable(v.Name, b.uncountedExpression(v.Expression))
	}
	for _, c := range spec.MatchConditions {
		q.Conditions = append(q.Conditions, b.uncountedExpression(c.Expression))
	}
	for _, v := range spec.Validations {
		var message *uncounted.Expression
		if v.MessageExpression != "" {
			message = b.uncountedExpression(v.MessageExpression)
		}
		q.Validations = append(q.Validations, b.uncountedExpression(v.Expression))
		q.Messages = append(q.Messages, message)
	}
	for _, a := range spec.AuditAnnotations {
		q.Annotations = append(q.Annotations, b.uncountedExpression(a.ValueExpression))
	}
	return q
}

// unsuitable returns why a batch can evaluate no expression of a policy; "" if it can.
func (b *builder) unsuitable(reads inputs) string {
	switch {
	case b.compiler.states != nil:
		return "its evaluations are traced"
	case len(b.errs) > 0:
		return "an expression does not compile"
	case len(b.policy.Spec.Validations) == 0:
		return "it has no validations"
	case reads.options:
		return "it reads request.options"
	case len(b.policy.Spec.Lookups) > 0:
		return "it reads lookups, whose lists have no bounds before the request"
	}
	return ""
}

// readsElsewhere returns which expression reads an input that has another value than in validations, or none; "" if
// there is none. Equal expressions share values in a batch.
func (b *builder) readsElsewhere(q *uncounted.Policy) string {
	for _, kind := range []struct {
		all         []*uncounted.Expression
		list, field string
		what        string // in a reason
	}{
		{q.Conditions, "matchConditions", "expression", "a match condition"},
		{q.Messages, "validations", "messageExpression", "a message"},
		{q.Annotations, "auditAnnotations", "valueExpression", "an audit annotation"},
	} {
		for i, e := range kind.all {
			at := field.NewPath("spec", kind.list).Index(i).Child(kind.field)
			switch {
			case e == nil:
			case q.Reads(e, uncounted.Authorizer):
				return fmt.Sprintf("%s: %s that asks the authorizer is evaluated alone", at, kind.what)
			case kind.list != "validations" && q.Reads(e, uncounted.NamespaceObject):
				return fmt.Sprintf("%s: namespaceObject has another value in %s", at, kind.what)
			}
		}
	}
	return ""
}

// needsMore reports whether an evaluation needs more than the objects and the request, or has a result besides
// decisions: the batch then evaluates the policy when its bindings are known.
func (b *builder) needsMore(q *uncounted.Policy, reads inputs) bool {
	spec := &b.policy.Spec
	return spec.ParamKind != nil || reads.namespace || len(spec.AuditAnnotations) > 0 || q.AsksAuthorizer() ||
		slices.ContainsFunc(spec.Bindings, func(b v1alpha1.Binding) bool { return b.MatchResources != nil })
}

// checkTemplateMutations rejects mutations of a policy with podTemplates that name a field
// that a template does not have. What an expression computes is checked when it is
// evaluated.
func (b *builder) checkTemplateMutations() {
	if b.policy.Spec.PodTemplates == nil {
		return
	}
	at := field.NewPath("spec", "mutations")
	for i, m := range b.policy.Spec.Mutations {
		path, text := at.Index(i).Child("jsonPatch", "expression"), ""
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			path, text = at.Index(i).Child("applyConfiguration", "expression"), m.ApplyConfiguration.Expression
		case m.JSONPatch != nil:
			text = m.JSONPatch.Expression
		}
		parsed := b.parsed[text]
		if parsed == nil { // it does not compile, which is another error
			continue
		}
		if name := podtemplate.OutsideField(parsed.NativeRep().Expr()); name != "" {
			detail := podtemplate.OutsideError(name).Error() + "; change it in a policy without podTemplates"
			b.errs = append(b.errs, field.Invalid(path, truncate.String(text, maxErrorDetail), detail))
		}
	}
}
