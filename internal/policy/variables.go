package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// typeOfVariables is the type of the CEL variable "variables".
const typeOfVariables = "kubernetes.variables"

// variable is a compiled variable of a policy.
type variable struct {
	name    string
	program *program
}

// variablesCompiler compiles expressions that can read variables. The API server creates
// eight environments for each policy, which differ in the fields of one type. Here all
// policies share the environments, and one policy at a time sets the fields during a
// compilation.
type variablesCompiler struct {
	mu       sync.Mutex
	compiler *celplugin.CompositedCompiler
	fields   *apiservercel.DeclType
}

func newVariablesCompiler(env *environment.EnvSet) (*variablesCompiler, error) {
	compiler, err := celplugin.NewCompositedCompiler(env)
	if err != nil {
		return nil, fmt.Errorf("preparing variables: %w", err)
	}
	stored, err := compiler.Env(environment.StoredExpressions)
	if err != nil {
		return nil, fmt.Errorf("preparing variables: %w", err)
	}
	provider, ok := stored.CELTypeProvider().(*apiservercel.DeclTypeProvider)
	if !ok {
		return nil, errors.New("preparing variables: unknown provider of types")
	}
	fields, ok := provider.FindDeclType(typeOfVariables)
	if !ok {
		return nil, errors.New("preparing variables: their type is not there")
	}
	compiler.Compiler = newSharingCompiler(compiler.Compiler)
	return &variablesCompiler{compiler: compiler, fields: fields}, nil
}

// expression compiles an expression that reads variables of the given types.
func (c *variablesCompiler) expression(known map[string]*apiservercel.DeclField, accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withCompiler(known)
	return &program{result: compile(accessor, func() celplugin.CompilationResult {
		return c.compiler.CompileCELExpression(accessor, decls, environment.StoredExpressions)
	})}
}

// anyVariable is the name of every variable that the compiler of Kubernetes compiles. It
// keeps the last one of each name, and the name does not change the result.
const anyVariable = "any"

// variable compiles the expression of a variable and determines its type.
func (c *variablesCompiler) variable(known map[string]*apiservercel.DeclField, accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withCompiler(known)
	named, _ := accessor.(celplugin.NamedExpressionAccessor)
	result := compile(accessor, func() celplugin.CompilationResult {
		return c.compiler.CompileAndStoreVariable(named, decls, environment.StoredExpressions)
	})
	out := &program{result: result, variable: apiservercel.AnyType}
	if stored := c.fields.Fields[anyVariable]; stored != nil { // else the compiler panicked
		out.variable = stored.Type
	}
	return out
}

func (c *variablesCompiler) withCompiler(known map[string]*apiservercel.DeclField) {
	clear(c.fields.Fields)
	for name, field := range known {
		c.fields.Fields[name] = field
	}
}

// variablesContext gives variables to the evaluators, as the context of the API server
// does: a variable is evaluated at its first use, once for a list of expressions, and the
// expression that reads it pays the cost.
type variablesContext struct {
	context.Context
	variables []variable
	cost      int64 // since the last call of GetAndResetCost
}

// Variables implements celplugin.CompositionContext.
func (c *variablesContext) Variables(activation any) ref.Val {
	values := lazy.NewMapValue(cel.ObjectType(typeOfVariables))
	for _, v := range c.variables {
		values.Append(v.name, func(*lazy.MapValue) ref.Val { return c.evaluate(v, activation) })
	}
	return values
}

// GetAndResetCost implements celplugin.CompositionContext.
func (c *variablesContext) GetAndResetCost() int64 {
	cost := c.cost
	c.cost = 0
	return cost
}

func (c *variablesContext) evaluate(v variable, activation any) ref.Val {
	result := &v.program.result
	if result.Error != nil {
		return types.NewErr("composited variable %q fails to compile: %v", v.name, result.Error)
	}
	value, details, err := result.Program.ContextEval(c, activation)
	if details == nil {
		return types.NewErr("unable to get evaluation details of variable %q", v.name)
	}
	cost := details.ActualCost()
	if cost == nil {
		return types.NewErr("unable to calculate cost of variable %q", v.name)
	}
	c.cost += int64(min(*cost, math.MaxInt64))
	if err != nil {
		return types.NewErr("composited variable %q fails to evaluate: %v", v.name, err)
	}
	return value
}

// readingConditions evaluates conditions that can read variables.
type readingConditions struct {
	celplugin.ConditionEvaluator
	variables []variable
}

// ForInput implements celplugin.ConditionEvaluator.
func (e readingConditions) ForInput(ctx context.Context, attr *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, vars celplugin.OptionalVariableBindings, namespace *corev1.Namespace, budget int64) ([]celplugin.EvaluationResult, int64, error) {
	return e.ConditionEvaluator.ForInput(&variablesContext{Context: ctx, variables: e.variables}, attr, request, vars, namespace, budget)
}

// readingMutation is a mutation that can read variables.
type readingMutation struct {
	celplugin.MutatingEvaluator
	variables []variable
}

// ForInput implements celplugin.MutatingEvaluator.
func (e readingMutation) ForInput(ctx context.Context, attr *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, vars celplugin.OptionalVariableBindings, namespace *corev1.Namespace, budget int64) (celplugin.EvaluationResult, int64, error) {
	return e.MutatingEvaluator.ForInput(&variablesContext{Context: ctx, variables: e.variables}, attr, request, vars, namespace, budget)
}
