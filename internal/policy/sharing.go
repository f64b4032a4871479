package policy

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// sharingCompiler compiles as the compiler of Kubernetes does. cel.Env.Program makes a
// table of all functions, and one of their costs, for each program: half of the time of a
// compilation, and most of the memory. The programs of a sharingCompiler share the tables
// of one program for each environment.
type sharingCompiler struct {
	celplugin.Compiler
	shared map[celplugin.OptionalVariableDeclarations]func() *sharedProgram // made at the first use
}

func newSharingCompiler(c celplugin.Compiler) sharingCompiler {
	out := sharingCompiler{Compiler: c, shared: map[celplugin.OptionalVariableDeclarations]func() *sharedProgram{}}
	for i := range 8 {
		decls := celplugin.OptionalVariableDeclarations{HasParams: i&1 != 0, HasAuthorizer: i&2 != 0, HasPatchTypes: i&4 != 0}
		out.shared[decls] = sync.OnceValue(func() *sharedProgram {
			first := c.CompileCELExpression(&matchconditions.MatchCondition{Expression: "true"}, decls, environment.StoredExpressions)
			return newSharedProgram(first.Program)
		})
	}
	return out
}

// CompileCELExpression implements celplugin.Compiler. The compiler of Kubernetes makes the
// errors, and the programs that cannot share.
func (c sharingCompiler) CompileCELExpression(accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations, mode environment.Type) celplugin.CompilationResult {
	var parsed *cel.Ast
	if p, ok := accessor.(parsedAccessor); ok {
		accessor, parsed = p.ExpressionAccessor, p.parsed
	}
	if shared := c.shared[decls](); shared != nil && mode == environment.StoredExpressions {
		checked, issues := shared.check(accessor.GetExpression(), parsed)
		if issues == nil && returns(accessor, checked.OutputType()) {
			if program, err := shared.plan(checked); err == nil {
				return celplugin.CompilationResult{Program: program, ExpressionAccessor: accessor, OutputType: checked.OutputType()}
			}
		}
	}
	return c.Compiler.CompileCELExpression(accessor, decls, mode)
}

// parsedAccessor is an expression that has been parsed. A check changes only how the tree
// writes names, so that it can be checked again.
type parsedAccessor struct {
	celplugin.ExpressionAccessor
	parsed *cel.Ast
}

// GetName implements celplugin.NamedExpressionAccessor, for variables.
func (parsedAccessor) GetName() string { return anyVariable }

func returns(accessor celplugin.ExpressionAccessor, out *cel.Type) bool {
	return slices.ContainsFunc(accessor.ReturnTypes(), func(t *cel.Type) bool { return out.IsExactType(t) || cel.AnyType.IsExactType(t) })
}

// sharedProgram is a program of cel-go, from which others of its environment are made.
type sharedProgram struct {
	env     *cel.Env
	program reflect.Value // a struct
	planner interpreter.Interpreter
	options []interpreter.PlannerOption
}

// newSharedProgram returns nil for a program with other options than those of Kubernetes,
// as a trace needs, and if cel-go renames its fields. TestProgramsShareFunctions then
// fails.
func newSharedProgram(p cel.Program) *sharedProgram {
	v := reflect.Indirect(reflect.ValueOf(p))
	if v.Kind() != reflect.Struct || !v.CanAddr() {
		return nil
	}
	env, planner, evaluation := fieldOf[*cel.Env](v, "Env"), fieldOf[interpreter.Interpreter](v, "interpreter"), fieldOf[cel.EvalOption](v, "evalOpts")
	decorators, regexes := fieldOf[[]interpreter.PlannerOption](v, "plannerOptions"), fieldOf[[]*interpreter.RegexOptimization](v, "regexOptimizations")
	frequency, defaults := fieldOf[uint](v, "interruptCheckFrequency"), fieldOf[cel.Activation](v, "defaultVars")
	estimator, costs, limit := fieldOf[interpreter.ActualCostEstimator](v, "callCostEstimator"), fieldOf[[]interpreter.CostTrackerOption](v, "costOptions"), fieldOf[*uint64](v, "costLimit")
	planned, observed := fieldOf[interpreter.InterpretableV2](v, "interpretable"), fieldOf[*interpreter.ObservableInterpretable](v, "observable")
	switch {
	case env == nil, planner == nil, evaluation == nil, decorators == nil, regexes == nil, frequency == nil, defaults == nil,
		estimator == nil, costs == nil, limit == nil, planned == nil, observed == nil:
		return nil
	case *evaluation != cel.OptOptimize|cel.OptTrackCost, *frequency == 0, *limit == nil, *defaults != nil:
		return nil
	}
	tracker, err := interpreter.NewCostTracker(*estimator, append(slices.Clone(*costs), interpreter.CostTrackerLimit(**limit))...)
	if err != nil {
		return nil
	}
	return &sharedProgram{env: *env, program: v, planner: *planner, options: append(slices.Clone(*decorators), // the order of cel-go
		interpreter.InterruptableEval(), interpreter.Optimize(), interpreter.CompileRegexConstants(*regexes...),
		interpreter.CostObserver(interpreter.CostTrackerFactory(tracker.Clone)))}
}

func (s *sharedProgram) check(expression string, parsed *cel.Ast) (*cel.Ast, *cel.Issues) {
	if parsed == nil {
		return s.env.Compile(expression)
	}
	return s.env.Check(parsed)
}

// plan returns a program that differs from the shared one only in its expression.
func (s *sharedProgram) plan(checked *cel.Ast) (cel.Program, error) {
	planned, err := s.planner.NewInterpretable(checked.NativeRep(), s.options...)
	if err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	copied := reflect.New(s.program.Type())
	copied.Elem().Set(s.program)
	*fieldOf[interpreter.InterpretableV2](copied.Elem(), "interpretable") = planned
	observed, _ := planned.(*interpreter.ObservableInterpretable)
	*fieldOf[*interpreter.ObservableInterpretable](copied.Elem(), "observable") = observed
	program, _ := copied.Interface().(cel.Program)
	return program, nil
}

// fieldOf returns a field of a struct, which need not be exported; nil if there is none of
// that type.
func fieldOf[T any](of reflect.Value, name string) *T {
	f := of.FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil
	}
	return (*T)(f.Addr().UnsafePointer())
}
