package celengine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
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

// Variable is a compiled variable of a policy.
type Variable struct {
	Name    string
	Program *Program
}

// variablesCompiler compiles expressions that can read variables. The API server creates
// eight environments for each policy, which differ in the fields of one type. Here all
// policies share the environments, and one policy at a time sets the fields during a
// compilation.
type variablesCompiler struct {
	mu       sync.Mutex
	compiler *celplugin.CompositedCompiler
	fields   *apiservercel.DeclType
	lookups  *apiservercel.DeclType // nil for expressions that read none
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
func (c *variablesCompiler) expression(
	known KnownVariables,
	accessor celplugin.ExpressionAccessor,
	decls celplugin.OptionalVariableDeclarations,
) *Program {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withCompiler(known)
	return &Program{Result: c.reading(compile(accessor, func() celplugin.CompilationResult {
		return c.compiler.CompileCELExpression(accessor, decls, environment.StoredExpressions)
	}))}
}

// reading gives lookups to a program that can read them.
func (c *variablesCompiler) reading(result celplugin.CompilationResult) celplugin.CompilationResult {
	if c.lookups != nil && result.Program != nil {
		result.Program = readingLookups{result.Program}
	}
	return result
}

// anyVariable is the name of every variable that the compiler of Kubernetes compiles. It
// keeps the last one of each name, and the name does not change the result.
const anyVariable = "any"

// variable compiles the expression of a variable and determines its type.
func (c *variablesCompiler) variable(
	known KnownVariables,
	accessor celplugin.ExpressionAccessor,
	decls celplugin.OptionalVariableDeclarations,
) *Program {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withCompiler(known)
	named, _ := accessor.(celplugin.NamedExpressionAccessor)
	result := compile(accessor, func() celplugin.CompilationResult {
		return c.compiler.CompileAndStoreVariable(named, decls, environment.StoredExpressions)
	})
	out := &Program{Result: c.reading(result), Type: apiservercel.AnyType}
	if stored := c.fields.Fields[anyVariable]; stored != nil { // else the compiler panicked
		out.Type = stored.Type
	}
	return out
}

func (c *variablesCompiler) withCompiler(known KnownVariables) {
	clear(c.fields.Fields)
	maps.Copy(c.fields.Fields, known.fields)
	if c.lookups != nil {
		clear(c.lookups.Fields)
		maps.Copy(c.lookups.Fields, known.lookups)
	}
}

// KnownVariables holds the names and types of the variables that a policy has declared so
// far.
type KnownVariables struct {
	fields map[string]*apiservercel.DeclField
	// signature is a hash of the names and types, in order. Its length does not depend on
	// their number.
	signature string

	lookups          map[string]*apiservercel.DeclField // nil for a policy without lookups
	lookupsSignature string
}

func (k KnownVariables) none() bool { return len(k.fields) == 0 }

// With adds a variable. It changes the fields instead of copying them, because the copies
// would grow with the square of the number of variables.
func (k KnownVariables) With(name string, p *Program) KnownVariables {
	if k.fields == nil {
		k.fields = map[string]*apiservercel.DeclField{}
	}
	k.fields[name] = apiservercel.NewDeclField(name, p.Type, true, nil, nil)
	sum := sha256.Sum256([]byte(k.signature + name + " " + p.Type.CelType().String()))
	k.signature = string(sum[:])
	return k
}

// maxVariableType is the number of types in the type of a variable.
const maxVariableType = 32

// CheckType returns an error for a variable whose type consists of so many types that expressions which read it
// would take long to compile.
func CheckType(p *Program) error {
	if typesIn(p.Type, maxVariableType) <= maxVariableType {
		return nil
	}
	return fmt.Errorf("the type of the variable consists of more than %d types; "+
		"use fewer lists and maps within each other", maxVariableType)
}

// typesIn returns the number of types in a type, at most bound + 1.
func typesIn(t *apiservercel.DeclType, bound int) int {
	if t == nil || bound <= 0 {
		return 1
	}
	n := 1
	for _, part := range []*apiservercel.DeclType{t.KeyType, t.ElemType} {
		if part != nil && n <= bound {
			n += typesIn(part, bound-n)
		}
	}
	return n
}

// variablesContext gives variables to the evaluators, as the context of the API server
// does: a variable is evaluated at its first use, once for a list of expressions, and the
// expression that reads it pays the cost.
type variablesContext struct {
	context.Context
	declared Declared
	lookups  ref.Val // nil without lookups
	cost     int64   // since the last call of GetAndResetCost
}

// Variables implements celplugin.CompositionContext.
func (c *variablesContext) Variables(activation any) ref.Val {
	c.lookups = c.lookupValues(activation)
	values := lazy.NewMapValue(cel.ObjectType(typeOfVariables))
	for _, v := range c.declared.Variables {
		values.Append(v.Name, func(*lazy.MapValue) ref.Val { return c.evaluate(v, activation) })
	}
	return values
}

// GetAndResetCost implements celplugin.CompositionContext.
func (c *variablesContext) GetAndResetCost() int64 {
	cost := c.cost
	c.cost = 0
	return cost
}

func (c *variablesContext) evaluate(v Variable, activation any) ref.Val {
	result := &v.Program.Result
	if result.Error != nil {
		return types.NewErr("composited variable %q fails to compile: %v", v.Name, result.Error)
	}
	value, details, err := result.Program.ContextEval(c, activation)
	if details == nil {
		return types.NewErr("unable to get evaluation details of variable %q", v.Name)
	}
	cost := details.ActualCost()
	if cost == nil {
		return types.NewErr("unable to calculate cost of variable %q", v.Name)
	}
	c.cost += int64(min(*cost, math.MaxInt64))
	if err != nil {
		return types.NewErr("composited variable %q fails to evaluate: %v", v.Name, err)
	}
	return value
}

// NewConditions returns an evaluator of conditions, which can read what a policy declares.
func NewConditions(results []celplugin.CompilationResult, declared Declared) celplugin.ConditionEvaluator {
	evaluator := celplugin.NewCondition(results)
	if declared.none() || len(results) == 0 {
		return evaluator
	}
	return readingConditions{ConditionEvaluator: evaluator, declared: declared}
}

// Results are the results of conditions that have been evaluated.
type Results []celplugin.EvaluationResult

// ForInput implements celplugin.ConditionEvaluator.
func (r Results) ForInput(
	_ context.Context,
	_ *admission.VersionedAttributes,
	_ *admissionv1.AdmissionRequest,
	_ celplugin.OptionalVariableBindings,
	_ *corev1.Namespace,
	budget int64,
) ([]celplugin.EvaluationResult, int64, error) {
	return r, budget, nil
}

// CompilationErrors implements celplugin.ConditionEvaluator.
func (Results) CompilationErrors() []error { return nil }

// readingConditions evaluates conditions that can read what a policy declares.
type readingConditions struct {
	celplugin.ConditionEvaluator
	declared Declared
}

// ForInput implements celplugin.ConditionEvaluator.
func (e readingConditions) ForInput(
	ctx context.Context,
	attr *admission.VersionedAttributes,
	request *admissionv1.AdmissionRequest,
	vars celplugin.OptionalVariableBindings,
	namespace *corev1.Namespace,
	budget int64,
) ([]celplugin.EvaluationResult, int64, error) {
	withVariables := &variablesContext{Context: ctx, declared: e.declared}
	return e.ConditionEvaluator.ForInput(withVariables, attr, request, vars, namespace, budget)
}

// NewMutation returns an evaluator of a mutation, which can read what a policy declares.
func NewMutation(result celplugin.CompilationResult, declared Declared) celplugin.MutatingEvaluator {
	evaluator := celplugin.NewMutatingEvaluator(result)
	if declared.none() {
		return evaluator
	}
	return readingMutation{MutatingEvaluator: evaluator, declared: declared}
}

// readingMutation is a mutation that can read what a policy declares.
type readingMutation struct {
	celplugin.MutatingEvaluator
	declared Declared
}

// ForInput implements celplugin.MutatingEvaluator.
func (e readingMutation) ForInput(
	ctx context.Context,
	attr *admission.VersionedAttributes,
	request *admissionv1.AdmissionRequest,
	vars celplugin.OptionalVariableBindings,
	namespace *corev1.Namespace,
	budget int64,
) (celplugin.EvaluationResult, int64, error) {
	withVariables := &variablesContext{Context: ctx, declared: e.declared}
	return e.MutatingEvaluator.ForInput(withVariables, attr, request, vars, namespace, budget)
}
