package policy

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// maxErrorDetail bounds, in bytes, what a compiler's complaint about one
// expression adds to a status condition, which holds at most 32 KiB in all.
const maxErrorDetail = 2048

// Compiler turns policies into their compiled form. It shares environments and
// programs between policies, since building them is most of the cost of
// compiling and most of the memory of the result. It is safe for concurrent use.
type Compiler struct {
	environment *environment.EnvSet
	compiler    celplugin.Compiler
	programs    *programCache
}

// NewCompiler returns a compiler for the CEL environment of the API server
// release that this program was built with.
func NewCompiler() *Compiler {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	return &Compiler{
		environment: env,
		compiler:    celplugin.NewCompiler(env),
		programs:    newProgramCache(),
	}
}

// Compile compiles a policy. It always returns a result: where an expression
// does not compile, the errors say which and why, and the result answers every
// request it matches with that error under the policy's failurePolicy, as the
// API server does for a stored policy that it cannot compile.
// The policy is neither changed nor kept.
func (c *Compiler) Compile(p *v1alpha1.WebhookPolicy) (*Compiled, field.ErrorList) {
	b := builder{compile: c.shared, policy: p}
	if len(p.Spec.Variables) > 0 {
		if err := b.declareVariables(c.environment); err != nil {
			b.errs = append(b.errs, field.InternalError(field.NewPath("spec", "variables"), err))
		}
	}
	compiled := newCompiled(p)
	compiled.validator = b.validator()
	compiled.programs = b.programs
	compiled.plain = b.plain(compiled.reads)
	return compiled, b.errs
}

// shared compiles an expression that reads no variables, or finds the program
// that another policy has compiled for the same one.
func (c *Compiler) shared(accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations) *program {
	key := programKey{expression: accessor.GetExpression(), kind: fmt.Sprintf("%T", accessor), decls: decls}
	return c.programs.get(key, func() *program {
		return &program{result: c.compiler.CompileCELExpression(accessor, decls, environment.StoredExpressions)}
	})
}

// builder gathers the parts and the errors of one policy while it is compiled.
type builder struct {
	policy   *v1alpha1.WebhookPolicy
	compile  func(celplugin.ExpressionAccessor, celplugin.OptionalVariableDeclarations) *program
	wrap     func(celplugin.ConditionEvaluator) celplugin.ConditionEvaluator
	programs []*program
	results  []celplugin.CompilationResult // of the validations
	errs     field.ErrorList
}

// declareVariables compiles the policy's variables, in order, and makes the
// expressions that follow compile in an environment of their own that knows them.
func (b *builder) declareVariables(env *environment.EnvSet) error {
	composited, err := celplugin.NewCompositedCompiler(env)
	if err != nil {
		return fmt.Errorf("preparing variables: %w", err)
	}
	path := field.NewPath("spec", "variables")
	for i, v := range b.policy.Spec.Variables {
		result := composited.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declarations(), environment.StoredExpressions)
		b.check(path.Index(i).Child("expression"), v.Expression, result)
	}
	b.compile = func(accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations) *program {
		return &program{result: composited.CompileCELExpression(accessor, decls, environment.StoredExpressions)}
	}
	b.wrap = func(e celplugin.ConditionEvaluator) celplugin.ConditionEvaluator {
		return composedEvaluator{ConditionEvaluator: e, compiler: composited}
	}
	return nil
}

// validator compiles everything but the variables. Lists without an entry get
// an evaluator that returns at once.
func (b *builder) validator() validating.Validator {
	spec := &b.policy.Spec
	failurePolicy := spec.EffectiveFailurePolicy()
	matcher := b.matcher(failurePolicy)
	b.results = b.validations()
	validations := b.evaluator(b.results)
	messages := b.evaluator(b.messageExpressions())
	return validating.NewValidator(validations, matcher, celplugin.NewCondition(nil), messages, &failurePolicy, b.errs.ToAggregate())
}

// plain are the validations of a policy that consists of nothing else, nil for
// any other.
func (b *builder) plain(reads inputs) []celplugin.CompilationResult {
	spec := &b.policy.Spec
	expressive := slices.ContainsFunc(spec.Validations, func(v admissionregistrationv1.Validation) bool { return v.MessageExpression != "" })
	if len(b.errs) > 0 || len(spec.Variables) > 0 || len(spec.MatchConditions) > 0 || expressive || reads.namespace {
		return nil
	}
	return b.results
}

func (b *builder) matcher(failurePolicy admissionregistrationv1.FailurePolicyType) matchconditions.Matcher {
	conditions := b.policy.Spec.MatchConditions
	if len(conditions) == 0 {
		return nil
	}
	path := field.NewPath("spec", "matchConditions")
	results := make([]celplugin.CompilationResult, len(conditions))
	for i := range conditions {
		accessor := matchconditions.MatchCondition(conditions[i])
		results[i] = b.expression(path.Index(i).Child("expression"), &accessor)
	}
	return matchconditions.NewMatcher(b.evaluator(results), &failurePolicy, "policy", "validate", b.policy.Name)
}

func (b *builder) validations() []celplugin.CompilationResult {
	path := field.NewPath("spec", "validations")
	results := make([]celplugin.CompilationResult, len(b.policy.Spec.Validations))
	for i, v := range b.policy.Spec.Validations {
		results[i] = b.expression(path.Index(i).Child("expression"),
			&validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: copyOf(v.Reason)})
	}
	return results
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// messageExpressions are nil where no validation has one; otherwise there is
// an entry for each validation, empty where that one has none, as the
// validator pairs them by index.
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
		results[i] = b.expression(path.Index(i).Child("messageExpression"),
			&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	return results
}

// expression compiles one expression. The accessor of the result is always the
// policy's own, even where the program is shared, since the validator reads
// messages and reasons from it.
func (b *builder) expression(path *field.Path, accessor celplugin.ExpressionAccessor) celplugin.CompilationResult {
	p := b.compile(accessor, declarations())
	b.programs = append(b.programs, p)
	result := p.result
	result.ExpressionAccessor = accessor
	b.check(path, accessor.GetExpression(), result)
	return result
}

func (b *builder) evaluator(results []celplugin.CompilationResult) celplugin.ConditionEvaluator {
	evaluator := celplugin.NewCondition(results)
	if b.wrap == nil || len(results) == 0 {
		return evaluator
	}
	return b.wrap(evaluator)
}

func (b *builder) check(path *field.Path, expression string, result celplugin.CompilationResult) {
	if result.Error == nil {
		return
	}
	b.errs = append(b.errs, field.Invalid(path, truncate(expression, maxErrorDetail), truncate(result.Error.Detail, maxErrorDetail)))
}

// declarations are the optional variables that expressions may read.
func declarations() celplugin.OptionalVariableDeclarations {
	return celplugin.OptionalVariableDeclarations{}
}

// truncate cuts s to at most limit bytes, at a rune's start, and says so.
func truncate(s string, limit int) string {
	const mark = "..."
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + mark
}
