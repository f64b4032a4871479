package policy

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// maxErrorDetail is the maximum of bytes that the error of one expression adds to a
// status condition, which holds at most 32 KiB.
const maxErrorDetail = 2048

// Compiler compiles policies. Policies share environments and programs, which take most
// of the time and of the memory. It is safe for concurrent use.
type Compiler struct {
	plain     celplugin.Compiler // for expressions that read no variables
	variables *variablesCompiler
	programs  *weakCache[programKey, program]
	untracked *untrackedCompiler
	env       *cel.Env // parses expressions to weigh them
	parser    *cel.Env // parses expressions as they are compiled
	engine    Engine
	states    *Compiler // see NewTracingCompiler; nil otherwise
}

// NewCompiler returns a compiler for the latest engine.
func NewCompiler() *Compiler { return NewCompilerFor(LatestEngine) }

// NewCompilerFor returns a compiler whose programs behave like those of an engine.
func NewCompilerFor(e Engine) *Compiler {
	return newCompiler(e, func(base *environment.EnvSet) (*environment.EnvSet, error) { return base, nil })
}

func newCompiler(e Engine, extend func(*environment.EnvSet) (*environment.EnvSet, error)) *Compiler {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	env, err := withEngine(base, e)
	if err == nil {
		env, err = withBoundedFunctions(env)
	}
	if err == nil {
		env, err = extend(env)
	}
	if err != nil {
		panic(err) // it depends on this program alone
	}
	variables, err := newVariablesCompiler(env)
	if err != nil {
		panic(err)
	}
	withoutCosts, err := newUntrackedCompiler(env)
	if err != nil {
		panic(err)
	}
	return &Compiler{plain: newSharingCompiler(celplugin.NewCompiler(env)), variables: variables, programs: newWeakCache[programKey, program](), untracked: withoutCosts, env: base.StoredExpressionsEnv(), parser: env.StoredExpressionsEnv(), engine: e}
}

// Engine returns the engine that the programs behave like.
func (c *Compiler) Engine() Engine { return c.engine }

// Compile compiles a policy. It always returns a result: if an expression does not
// compile, the errors contain the field and the reason, and failurePolicy decides every
// request of the result, as the API server does for a stored policy that does not
// compile. Compile neither changes nor keeps the policy.
func (c *Compiler) Compile(p *v1alpha1.WebhookPolicy) (*Compiled, field.ErrorList) {
	return c.CompilePlugin(p, nil, nil)
}

// CompilePlugin compiles a policy that names a plugin, which decides the requests that
// satisfy the matchConditions. Errors of its configuration count as errors of
// expressions.
func (c *Compiler) CompilePlugin(p *v1alpha1.WebhookPolicy, plugin Plugin, errs field.ErrorList) (*Compiled, field.ErrorList) {
	b := newBuilder(p, c)
	b.errs = errs
	parsed, err := c.weigh(p)
	if b.parsed = parsed; err != nil {
		b.errs = append(b.errs, err)
		b.policy = withoutExpressions(p)
	}
	b.declareVariables()
	out := b.build()
	out.plugin = plugin
	if p.Spec.Plugin != nil {
		unmanaged := unstructuredjson.Without("metadata", "managedFields") // often half of an object
		out.reads = out.reads.with(inputs{object: unmanaged, oldObject: unmanaged, values: true})
		out.quick = nil
	}
	return out, b.hinted()
}

// expression compiles an expression that can read variables of the given types, or
// returns the shared program of an equal one. parsed can be nil.
func (c *Compiler) expression(known knownVariables, accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations, parsed *cel.Ast) *program {
	key := programKey{expression: accessor.GetExpression(), kind: reflect.TypeOf(accessor), decls: decls}
	if known.none() || !strings.Contains(key.expression, "variables") {
		return c.programs.get(key, func() *program {
			return &program{result: compile(accessor, func() celplugin.CompilationResult {
				return c.plain.CompileCELExpression(c.parsed(accessor, parsed), decls, environment.StoredExpressions)
			})}
		})
	}
	key.variables = known.signature
	return c.programs.get(key, func() *program { return c.variables.expression(known.fields, c.parsed(accessor, parsed), decls) })
}

// parsed returns an accessor with the syntax tree of weigh. Earlier engines have other
// macros.
func (c *Compiler) parsed(accessor celplugin.ExpressionAccessor, parsed *cel.Ast) celplugin.ExpressionAccessor {
	if parsed == nil || c.engine < strictOptionals {
		return accessor
	}
	return parsedAccessor{accessor, parsed}
}

// compile returns what a compiler of CEL returns, with the functions' own names in an
// error. A panic of the compiler, which [?x] causes if x is not optional, is an error.
func compile(accessor celplugin.ExpressionAccessor, compiler func() celplugin.CompilationResult) (result celplugin.CompilationResult) {
	defer func() {
		if value := recover(); value != nil {
			result = celplugin.CompilationResult{ExpressionAccessor: accessor, Error: &apiservercel.Error{
				Type:   apiservercel.ErrorTypeInvalid,
				Detail: fmt.Sprintf("compilation failed: %v: an entry [?x] or {?key: x} needs an optional value, as in [?object.?name]", PanicError(value)),
			}}
		}
		if result.Error != nil {
			result.Error.Detail = strings.ReplaceAll(result.Error.Detail, tolerant, "")
		}
	}()
	return compiler()
}

// variable compiles the expression of a variable, as expression does.
func (c *Compiler) variable(known knownVariables, expression string, decls celplugin.OptionalVariableDeclarations, parsed *cel.Ast) *program {
	key := programKey{expression: expression, decls: decls, variables: known.signature}
	return c.programs.get(key, func() *program {
		return c.variables.variable(known.fields, c.parsed(&validating.Variable{Name: anyVariable, Expression: expression}, parsed), decls)
	})
}

// knownVariables holds the names and types of the variables that a policy has declared so
// far.
type knownVariables struct {
	fields map[string]*apiservercel.DeclField
	// signature is a hash of the names and types, in order. Its length does not depend on
	// their number.
	signature string
}

func (k knownVariables) none() bool { return len(k.fields) == 0 }

// with adds a variable. It changes the fields instead of copying them, because the copies
// would grow with the square of the number of variables.
func (k knownVariables) with(name string, p *program) knownVariables {
	if k.fields == nil {
		k.fields = map[string]*apiservercel.DeclField{}
	}
	k.fields[name] = apiservercel.NewDeclField(name, p.variable, true, nil, nil)
	sum := sha256.Sum256([]byte(k.signature + name + " " + p.variable.CelType().String()))
	return knownVariables{fields: k.fields, signature: string(sum[:])}
}
