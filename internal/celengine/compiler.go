// Package celengine compiles expressions with the CEL libraries of Kubernetes, so that they give the results,
// errors and costs of native policies in a given version of Kubernetes.
//
// It differs from the compiler of Kubernetes in what costs time and memory: programs are shared between policies,
// functions check their arguments before they run, and the compiler cannot panic.
package celengine

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/weakcache"
)

// Compiler compiles expressions. Its environments and programs take most of the time and of the memory, so policies
// share them. It is safe for concurrent use.
type Compiler struct {
	plain     celplugin.Compiler // for expressions that read no variables
	variables *variablesCompiler
	lookups   func() (*variablesCompiler, error) // made at the first use
	programs  *weakcache.Cache[programKey, Program]
	base      *environment.EnvSet // of Kubernetes
	extended  *environment.EnvSet // with the functions of the engine
	engine    Engine

	objectsOnly func() (*cel.Env, error) // of conditions, made at the first use
	stored      storedCompiler
}

// Program is a compiled expression, which policies can share. The compiler forgets it when no policy holds it.
type Program struct {
	Result celplugin.CompilationResult
	Type   *apiservercel.DeclType // of a variable; nil for other expressions
}

type programKey struct {
	expression string
	kind       reflect.Type // of the accessor, which determines the permitted types; nil for a variable
	decls      celplugin.OptionalVariableDeclarations
	variables  string // names and types of the variables that it can read; empty if it reads none
	lookups    string // the same for lookups
}

// NewCompiler returns a compiler whose programs behave like those of an engine. Options are added to each program.
func NewCompiler(e Engine, options ...cel.ProgramOption) *Compiler {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	c := &Compiler{base: base, engine: e, programs: weakcache.New[programKey, Program]()}
	var err error
	if c.extended, err = extended(base, e, options); err != nil {
		panic(err) // it depends on this program alone
	}
	if c.variables, err = newVariablesCompiler(c.extended); err != nil {
		panic(err)
	}
	c.plain = newSharingCompiler(celplugin.NewCompiler(c.extended))
	c.objectsOnly = sync.OnceValues(func() (*cel.Env, error) { return newObjectsOnly(c.extended) })
	c.lookups = sync.OnceValues(func() (*variablesCompiler, error) { return newLookupsCompiler(c.extended) })
	c.stored = newStoredCompiler(c.extended)
	return c
}

// extended returns an environment with the functions of an engine, whose arguments are bounded.
func extended(base *environment.EnvSet, e Engine, options []cel.ProgramOption) (*environment.EnvSet, error) {
	env, err := withEngine(base, e)
	if err != nil {
		return nil, err
	}
	if env, err = withBoundedFunctions(env); err != nil || len(options) == 0 {
		return env, err
	}
	return env.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		ProgramOptions:    options,
	})
}

// Engine returns the engine that the programs behave like.
func (c *Compiler) Engine() Engine { return c.engine }

// Programs returns the number of programs that the compiler has not forgotten.
func (c *Compiler) Programs() int { return c.programs.Len() }

// Environment returns the functions that expressions can call, as the engine has them.
func (c *Compiler) Environment() *environment.EnvSet { return c.extended }

// SyntaxEnv returns the environment that parses expressions to read their syntax trees, which are those of every
// engine.
func (c *Compiler) SyntaxEnv() *cel.Env { return c.base.StoredExpressionsEnv() }

// Parse parses an expression as it is compiled, so that its ids are those of the programs.
func (c *Compiler) Parse(expression string) (*cel.Ast, error) {
	env, err := c.extended.StoredExpressionsEnv().Extend(cel.EnableMacroCallTracking())
	if err != nil {
		return nil, fmt.Errorf("preparing to parse: %w", err)
	}
	parsed, issues := env.Parse(expression)
	return parsed, issues.Err()
}

// Expression compiles an expression that can read variables of the given types, or returns the shared program of an
// equal one. The syntax tree is one of SyntaxEnv; nil has the expression parsed again.
func (c *Compiler) Expression(
	known KnownVariables,
	accessor celplugin.ExpressionAccessor,
	decls celplugin.OptionalVariableDeclarations,
	parsed *cel.Ast,
) *Program {
	key := programKey{expression: accessor.GetExpression(), kind: reflect.TypeOf(accessor), decls: decls}
	if known.lookupsReadBy(key.expression) {
		key.variables, key.lookups = known.signature, known.lookupsSignature
		return c.programs.Get(key, func() *Program {
			return c.variablesFor(known, key.expression).expression(known, c.parsed(accessor, parsed), decls)
		})
	}
	if known.none() || !strings.Contains(key.expression, "variables") {
		return c.programs.Get(key, func() *Program {
			return &Program{Result: compile(accessor, func() celplugin.CompilationResult {
				return c.plain.CompileCELExpression(c.parsed(accessor, parsed), decls, environment.StoredExpressions)
			})}
		})
	}
	key.variables = known.signature
	return c.programs.Get(key, func() *Program {
		return c.variables.expression(known, c.parsed(accessor, parsed), decls)
	})
}

// parsed returns an accessor with a syntax tree of SyntaxEnv. Earlier engines have other macros, so they parse the
// expression again.
func (c *Compiler) parsed(accessor celplugin.ExpressionAccessor, parsed *cel.Ast) celplugin.ExpressionAccessor {
	if parsed == nil || c.engine < strictOptionals {
		return accessor
	}
	return parsedAccessor{accessor, parsed}
}

// compile returns what a compiler of CEL returns, with the functions' own names in an
// error. A panic of the compiler, which [?x] causes if x is not optional, is an error.
func compile(
	accessor celplugin.ExpressionAccessor,
	compiler func() celplugin.CompilationResult,
) (result celplugin.CompilationResult) {
	defer func() {
		if value := recover(); value != nil {
			result = celplugin.CompilationResult{ExpressionAccessor: accessor, Error: &apiservercel.Error{
				Type: apiservercel.ErrorTypeInvalid,
				Detail: fmt.Sprintf("compilation failed: %v: an entry [?x] or {?key: x} needs an optional value, "+
					"as in [?object.?name]", panics.Error(value)),
			}}
		}
		if result.Error != nil {
			result.Error.Detail = strings.ReplaceAll(result.Error.Detail, tolerant, "")
		}
	}()
	return compiler()
}

// Variable compiles the expression of a variable, as Expression does.
func (c *Compiler) Variable(
	known KnownVariables,
	expression string,
	decls celplugin.OptionalVariableDeclarations,
	parsed *cel.Ast,
) *Program {
	key := programKey{expression: expression, decls: decls, variables: known.signature}
	if known.lookupsReadBy(expression) {
		key.lookups = known.lookupsSignature
	}
	return c.programs.Get(key, func() *Program {
		accessor := &validating.Variable{Name: anyVariable, Expression: expression}
		return c.variablesFor(known, expression).variable(known, c.parsed(accessor, parsed), decls)
	})
}

// variablesFor returns the compiler for an expression that can read variables, and lookups if it names them.
func (c *Compiler) variablesFor(known KnownVariables, expression string) *variablesCompiler {
	if !known.lookupsReadBy(expression) {
		return c.variables
	}
	compiler, err := c.lookups()
	if err != nil {
		panic(err) // it depends on this program alone
	}
	return compiler
}
