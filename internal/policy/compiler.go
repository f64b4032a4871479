package policy

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
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
	plain     celplugin.Compiler // for expressions that read no variables
	variables *variablesCompiler
	programs  *programCache
	env       *cel.Env // parses expressions to weigh them
	engine    Engine
}

// NewCompiler returns a compiler for the latest engine.
func NewCompiler() *Compiler { return NewCompilerFor(LatestEngine) }

// NewCompilerFor returns a compiler whose programs behave like those of an engine.
func NewCompilerFor(e Engine) *Compiler {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	env, err := withEngine(base, e)
	if err == nil {
		env, err = withBoundedFunctions(env)
	}
	if err != nil {
		panic(err) // as the environments themselves, it depends on this program alone
	}
	variables, err := newVariablesCompiler(env)
	if err != nil {
		panic(err)
	}
	return &Compiler{plain: celplugin.NewCompiler(env), variables: variables, programs: newProgramCache(), env: base.StoredExpressionsEnv(), engine: e}
}

// Engine is the engine that the programs behave like.
func (c *Compiler) Engine() Engine { return c.engine }

// Compile compiles a policy. It always returns a result: where an expression
// does not compile, the errors say which and why, and the result answers every
// request it matches with that error under the policy's failurePolicy, as the
// API server does for a stored policy that it cannot compile.
// The policy is neither changed nor kept.
func (c *Compiler) Compile(p *v1alpha1.WebhookPolicy) (*Compiled, field.ErrorList) {
	return c.CompilePlugin(p, nil, nil)
}

// CompilePlugin is Compile for a policy that names a plugin: it decides the
// requests that satisfy the matchConditions. Errors of its configuration are
// taken for errors of expressions.
func (c *Compiler) CompilePlugin(p *v1alpha1.WebhookPolicy, plugin Plugin, errs field.ErrorList) (*Compiled, field.ErrorList) {
	b := newBuilder(p, c)
	b.errs = errs
	if err := c.weigh(p); err != nil {
		b.errs = append(b.errs, err)
		b.policy = withoutExpressions(p)
	}
	b.declareVariables()
	out := b.build()
	out.plugin = plugin
	if p.Spec.Plugin != nil {
		out.reads.oldObject, out.reads.values = true, true
		out.plain = nil
	}
	return out, b.hinted()
}

// expression compiles an expression that may read variables of the given types,
// or finds the program that another policy has compiled for the same one.
func (c *Compiler) expression(known knownVariables, accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations) *program {
	key := programKey{expression: accessor.GetExpression(), kind: fmt.Sprintf("%T", accessor), decls: decls}
	if known.none() || !strings.Contains(key.expression, "variables") {
		return c.programs.get(key, func() *program {
			return &program{result: compile(accessor, func() celplugin.CompilationResult {
				return c.plain.CompileCELExpression(accessor, decls, environment.StoredExpressions)
			})}
		})
	}
	key.variables = known.signature
	return c.programs.get(key, func() *program { return c.variables.expression(known.fields, accessor, decls) })
}

// compile returns what a compiler of CEL returns, with the functions' own names in an
// error. A panic of the compiler, which [?x] causes if x is not optional, is an error.
func compile(accessor celplugin.ExpressionAccessor, compiler func() celplugin.CompilationResult) (result celplugin.CompilationResult) {
	defer func() {
		if value := recover(); value != nil {
			result = celplugin.CompilationResult{ExpressionAccessor: accessor, Error: &apiservercel.Error{
				Type:   apiservercel.ErrorTypeInvalid,
				Detail: fmt.Sprintf("compilation failed: %v: an entry [?x] or {?key: x} needs an optional value, as in [?object.?name]", panicError(value)),
			}}
		}
		if result.Error != nil {
			result.Error.Detail = strings.ReplaceAll(result.Error.Detail, tolerant, "")
		}
	}()
	return compiler()
}

// variable is expression for that of a variable.
func (c *Compiler) variable(known knownVariables, expression string, decls celplugin.OptionalVariableDeclarations) *program {
	key := programKey{expression: expression, kind: "variable", decls: decls, variables: known.signature}
	return c.programs.get(key, func() *program { return c.variables.variable(known.fields, expression, decls) })
}

// knownVariables are the names and types of the variables that a policy has
// declared so far.
type knownVariables struct {
	fields map[string]*apiservercel.DeclField
	// signature is a hash of the names and types, in order. It has one length,
	// however many there are.
	signature string
}

func (k knownVariables) none() bool { return len(k.fields) == 0 }

// with declares one more. It adds to the fields that it is given, since copies
// of all of them for each variable would grow with the square of their number.
func (k knownVariables) with(name string, p *program) knownVariables {
	if k.fields == nil {
		k.fields = map[string]*apiservercel.DeclField{}
	}
	k.fields[name] = apiservercel.NewDeclField(name, p.variable, true, nil, nil)
	sum := sha256.Sum256([]byte(k.signature + name + " " + p.variable.CelType().String()))
	return knownVariables{fields: k.fields, signature: string(sum[:])}
}
