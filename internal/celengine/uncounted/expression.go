package uncounted

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/weakcache"
)

// Expression is an expression that is evaluated without counting its cost. That takes a third of the time. It may be
// evaluated only if the bounds of its cost permit it.
type Expression struct {
	Program interpreter.InterpretableV2 // nil for an expression that cannot be evaluated so

	bounds [classes]float64 // upper bounds of the cost, by class
	small  bool             // the value has the extent of any class that the values have that it reads
	fixed  *extent          // of the value if it is a constant, which is then measured once, else nil
	reads  []string         // variables, sorted
	inputs Input

	patterns        patterns // that a call of matches can compute
	computesPattern bool
}

// Input is a set of inputs that not all policies have.
type Input uint8

// Inputs that not all policies have.
const (
	Params Input = 1 << iota
	NamespaceObject
	Authorizer
)

func inputOf(name string) Input {
	switch name {
	case celplugin.ParamsVarName:
		return Params
	case celplugin.NamespaceVarName:
		return NamespaceObject
	case celplugin.AuthorizerVarName:
		return Authorizer
	}
	return 0
}

// Compiler compiles expressions that have compiled before. Of their inputs, only the namespace has a static type,
// because its fields for times are texts, which functions reject. It is safe for concurrent use.
type Compiler struct {
	check    *cel.Env
	planner  interpreter.Interpreter
	programs *weakcache.Cache[string, Expression]
}

// NewCompiler returns a compiler for the functions of an environment.
func NewCompiler(base *environment.EnvSet) (*Compiler, error) {
	namespace := celplugin.BuildNamespaceType()
	inputs := []cel.EnvOption{cel.Variable(celplugin.NamespaceVarName, namespace.CelType())}
	names := []string{
		celplugin.ObjectVarName, celplugin.OldObjectVarName, celplugin.RequestVarName, celplugin.VariableVarName,
		celplugin.ParamsVarName, celplugin.AuthorizerVarName,
	}
	for _, name := range names {
		inputs = append(inputs, cel.Variable(name, cel.DynType))
	}
	set, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        inputs,
		DeclTypes:         []*apiservercel.DeclType{namespace},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the evaluation without costs: %w", err)
	}
	check := set.StoredExpressionsEnv()
	planner, err := newPlanner(check)
	return &Compiler{check: check, planner: planner, programs: weakcache.New[string, Expression]()}, err
}

// newPlanner returns a planner for the types and the functions of an environment. A
// cel.Program would count costs, since Kubernetes' environment says so, and would make a
// table of all functions for each expression: half of the time of a compilation.
func newPlanner(env *cel.Env) (interpreter.Interpreter, error) {
	functions := interpreter.NewDispatcher()
	for _, f := range env.Functions() {
		bindings, err := f.Bindings()
		if err != nil {
			return nil, fmt.Errorf("preparing the evaluation without costs: %w", err)
		}
		if err := functions.Add(bindings...); err != nil {
			return nil, fmt.Errorf("preparing the evaluation without costs: %w", err)
		}
	}
	adapter, provider := jsonAdapter{env.CELTypeAdapter()}, env.CELTypeProvider()
	attributes := interpreter.NewAttributeFactory(env.Container, adapter, provider)
	return interpreter.NewInterpreter(functions, env.Container, provider, adapter, attributes), nil
}

// Compile compiles an expression from its syntax tree, or returns the shared program of an equal one. An expression
// that cannot be evaluated without counting its cost has infinite bounds.
func (c *Compiler) Compile(expression string, parsed *cel.Ast) *Expression {
	return c.programs.Get(expression, func() *Expression {
		u, err := c.compileNew(parsed)
		if err != nil {
			u = &Expression{}
			for i := range u.bounds {
				u.bounds[i] = math.Inf(1)
			}
		}
		return u
	})
}

func (c *Compiler) compileNew(parsed *cel.Ast) (u *Expression, err error) {
	defer func() {
		if value := recover(); value != nil { // of the compiler, which [?x] causes if x is not optional
			err = panics.Error(value)
		}
	}()
	checked, issues := c.check.Check(parsed)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	root := checked.NativeRep().Expr()
	u = boundsOf(root)
	u.patterns, u.computesPattern = patternsOf(root)
	if u.reads, u.inputs, err = readsOf(root); err != nil {
		return nil, err
	}
	if u.inputs&NamespaceObject != 0 && hasStaticFields(checked.OutputType()) {
		return nil, errors.New("its value has the static type of a part of namespaceObject")
	}
	u.Program, err = c.planner.NewInterpretable(
		withLoops(checked.NativeRep()),
		interpreter.CustomDecoratorV2(decorateSelections),
		interpreter.Optimize(),
		interpreter.CompileRegexConstants(
			interpreter.MatchesRegexOptimization, library.FindRegexOptimization, library.FindAllRegexOptimization,
		),
	)
	u.fixed = fixedExtent(u.Program)
	return u, err
}

// fixedExtent returns the extent of the value of a program that is a constant, such as a table of literals, else nil.
func fixedExtent(program interpreter.InterpretableV2) *extent {
	constant, ok := program.(interpreter.InterpretableConst)
	if !ok {
		return nil
	}
	size := measure(constant.Value())
	return &size
}

func boundsOf(root ast.Expr) *Expression {
	u := &Expression{small: true}
	for i := range u.bounds {
		limit := Class(i).extent()
		cost, size := bound(root, limit, nil)
		u.bounds[i] = cost
		u.small = u.small && size.fits(limit)
	}
	return u
}

// hasStaticFields reports whether a value can be a time of a namespace, or have one in it. A variable has no static type
// in a batch, so that functions would accept it.
func hasStaticFields(t *types.Type) bool {
	return t.Kind() == types.TimestampKind || t.Kind() == types.StructKind ||
		slices.ContainsFunc(t.Parameters(), hasStaticFields)
}

// eval returns the value of the expression, which can be an error. A panic is an unfinishedError.
func (u *Expression) eval(frame *interpreter.ExecutionFrame) (out ref.Val) {
	defer func() {
		if value := recover(); value != nil {
			out = types.WrapErr(&unfinishedError{panics.Error(value)})
		}
	}()
	return u.Program.Exec(frame)
}

// readsOf returns the names of the variables that an expression reads, and inputs. An error
// means that it computes a name, or that a name is escaped or, such as .object, absolute.
func readsOf(root ast.Expr) (names []string, inputs Input, err error) {
	uses, selected := 0, 0
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			inputs |= inputOf(e.AsIdent())
		}
		switch {
		case isVariables(e) || e.Kind() == ast.IdentKind && strings.HasPrefix(e.AsIdent(), "."):
			uses++
		case e.Kind() == ast.SelectKind && isVariables(e.AsSelect().Operand()):
			selected++
			names = append(names, e.AsSelect().FieldName())
		}
	}))
	if uses != selected || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "__") }) {
		return nil, 0, fmt.Errorf("the variables that the expression reads are not known")
	}
	slices.Sort(names)
	return slices.Compact(names), inputs, nil
}

func isVariables(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == celplugin.VariableVarName
}
