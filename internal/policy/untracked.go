package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
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
	program cel.Program
	bounds  [classes]float64 // upper bounds of the cost, by class
	reads   []string         // variables, sorted
	planner *planner         // keeps it in the cache
}

// untrackedCompiler compiles expressions that have compiled before. All of their inputs
// have no static type.
type untrackedCompiler struct {
	check     *cel.Env
	functions map[string]*decls.FunctionDecl
	planners  *weakCache[string, planner]
	programs  *weakCache[string, untracked]
}

// planner makes programs that call some functions. Each program has a table of all
// functions of its environment, so an environment with all of them takes much memory.
type planner struct{ env *cel.Env }

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
	c := &untrackedCompiler{check: check, functions: check.Functions(), planners: newWeakCache[string, planner](), programs: newWeakCache[string, untracked]()}
	_, err = c.newPlanner(slices.Collect(maps.Keys(c.functions)))
	return c, err
}

// newPlanner returns an environment with the types and with some functions of the other
// one. The options of programs cannot be removed from an environment, and those of
// Kubernetes count costs.
func (c *untrackedCompiler) newPlanner(functions []string) (*planner, error) {
	options := []cel.EnvOption{cel.CustomTypeAdapter(c.check.CELTypeAdapter()), cel.CustomTypeProvider(c.check.CELTypeProvider()), cel.OptionalTypes()}
	for _, name := range functions {
		if f := c.functions[name]; f != nil {
			options = append(options, cel.FunctionDecls(f))
		}
	}
	env, err := cel.NewCustomEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("preparing the evaluation without costs: %w", err)
	}
	return &planner{env}, nil
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
			err = panicError(value)
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
	functions := functionsIn(root)
	u.planner = c.planners.get(strings.Join(functions, " "), func() *planner {
		p, _ := c.newPlanner(functions) // all functions together are no error
		return p
	})
	u.program, err = u.planner.env.Program(checked, cel.EvalOptions(cel.OptOptimize))
	return u, err
}

// functionsIn returns the names of the functions that an expression calls, sorted.
func functionsIn(root ast.Expr) []string {
	var names []string
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			names = append(names, e.AsCall().FunctionName())
		}
	}))
	slices.Sort(names)
	return slices.Compact(names)
}

// variablesIn returns the names of the variables that an expression reads. An error
// means that it computes a name, or that a name is escaped.
func variablesIn(root ast.Expr) ([]string, error) {
	var names []string
	uses, selected := 0, 0
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.IdentKind && e.AsIdent() == celplugin.VariableVarName:
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
