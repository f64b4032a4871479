package policy

import (
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
	"k8s.io/apiserver/pkg/cel/environment"
)

// Extents of requests for which costs are bounded in advance.
var (
	elementClasses = [...]float64{16, 64, 256, 1024}      //nolint:gochecknoglobals // a constant
	textClasses    = [...]float64{128, 1024, 8192, 65536} //nolint:gochecknoglobals // a constant
)

const classes = len(elementClasses) * len(textClasses)

// class is the index of an extent of requests.
type class int

// classOf returns the smallest class of an extent, and whether there is one.
func classOf(e extent) (class, bool) {
	i := slices.IndexFunc(elementClasses[:], func(limit float64) bool { return e.elements <= limit })
	j := slices.IndexFunc(textClasses[:], func(limit float64) bool { return e.text <= limit })
	return class(i*len(textClasses) + j), i >= 0 && j >= 0
}

func (c class) extent() extent {
	elements := elementClasses[int(c)/len(textClasses)]
	return extent{elements: elements, nested: elements, text: textClasses[int(c)%len(textClasses)]}
}

// untracked is an expression that is evaluated without counting its cost. That takes a
// third of the time. It may be evaluated only if the bounds of its cost permit it.
type untracked struct {
	program interpreter.InterpretableV2
	bounds  [classes]float64 // upper bounds of the cost, by class
	reads   []string         // variables, sorted
}

// untrackedCompiler compiles expressions that have compiled before. All of their inputs
// have no static type.
type untrackedCompiler struct {
	check    *cel.Env
	planner  interpreter.Interpreter
	programs *weakCache[string, untracked]
}

func newUntrackedCompiler(base *environment.EnvSet) (*untrackedCompiler, error) {
	var inputs []cel.EnvOption
	for _, name := range []string{celplugin.ObjectVarName, celplugin.OldObjectVarName, celplugin.RequestVarName, celplugin.VariableVarName} {
		inputs = append(inputs, cel.Variable(name, cel.DynType))
	}
	set, err := base.Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: inputs})
	if err != nil {
		return nil, fmt.Errorf("preparing the evaluation without costs: %w", err)
	}
	check := set.StoredExpressionsEnv()
	planner, err := newPlanner(check)
	return &untrackedCompiler{check: check, planner: planner, programs: newWeakCache[string, untracked]()}, err
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
	return interpreter.NewInterpreter(functions, env.Container, provider, adapter, interpreter.NewAttributeFactory(env.Container, adapter, provider)), nil
}

// compile returns nil for an expression that cannot be evaluated without counting its cost.
func (c *untrackedCompiler) compile(expression string, parsed *cel.Ast) *untracked {
	return c.programs.get(expression, func() *untracked {
		u, err := c.compileNew(parsed)
		if err != nil {
			u = &untracked{}
			for i := range u.bounds {
				u.bounds[i] = math.Inf(1)
			}
		}
		return u
	})
}

func (c *untrackedCompiler) compileNew(parsed *cel.Ast) (u *untracked, err error) {
	defer func() {
		if value := recover(); value != nil { // see compile
			err = PanicError(value)
		}
	}()
	checked, issues := c.check.Check(parsed)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	u = &untracked{}
	root := checked.NativeRep().Expr()
	for i := range u.bounds {
		u.bounds[i] = costBound(root, class(i).extent())
	}
	if u.reads, err = variablesIn(root); err != nil {
		return nil, err
	}
	u.program, err = c.planner.NewInterpretable(withLoops(checked.NativeRep()), interpreter.CustomDecoratorV2(decorateSelections),
		interpreter.Optimize(), interpreter.CompileRegexConstants(interpreter.MatchesRegexOptimization))
	return u, err
}

// eval returns the value of the expression, which can be an error. A panic is one too.
func (u *untracked) eval(frame *interpreter.ExecutionFrame) (out ref.Val) {
	defer func() {
		if value := recover(); value != nil {
			out = types.WrapErr(PanicError(value))
		}
	}()
	return u.program.Exec(frame)
}

// variablesIn returns the names of the variables that an expression reads. An error
// means that it computes a name, or that a name is escaped or, such as .object, absolute.
func variablesIn(root ast.Expr) ([]string, error) {
	var names []string
	uses, selected := 0, 0
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.IdentKind && (e.AsIdent() == celplugin.VariableVarName || strings.HasPrefix(e.AsIdent(), ".")):
			uses++
		case e.Kind() == ast.SelectKind && e.AsSelect().Operand().Kind() == ast.IdentKind && e.AsSelect().Operand().AsIdent() == celplugin.VariableVarName:
			selected++
			names = append(names, e.AsSelect().FieldName())
		}
	}))
	if uses != selected || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "__") }) {
		return nil, fmt.Errorf("the variables that the expression reads are not known")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
