package celengine

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"
)

// This file is the only one that reads and writes fields that cel-go does not export. cel-go has no function that
// makes a program with the tables of another one, and without it each expression of each policy holds tables of all
// functions, so a policy takes twice the memory and compiles in twice the time. If cel-go renames a field or
// changes its type, newSharedProgram returns nil: the compiler of Kubernetes then makes every program, with the
// same results, and TestProgramsAreShared fails.

// sharedProgram is a program of cel-go, from which others of its environment are made.
type sharedProgram struct {
	env     *cel.Env
	program reflect.Value // a struct
	planner interpreter.Interpreter
	options []interpreter.PlannerOption
}

// newSharedProgram returns nil for a program with other options than those of Kubernetes, as a trace needs, and for a
// program of an unknown version of cel-go.
func newSharedProgram(p cel.Program) *sharedProgram {
	v := reflect.Indirect(reflect.ValueOf(p))
	if v.Kind() != reflect.Struct || !v.CanAddr() {
		return nil
	}
	// What a copy of the program takes over or replaces.
	env := unexportedField[*cel.Env](v, "Env")
	planner := unexportedField[interpreter.Interpreter](v, "interpreter")
	planned := unexportedField[interpreter.InterpretableV2](v, "interpretable")
	observed := unexportedField[*interpreter.ObservableInterpretable](v, "observable")
	if env == nil || planner == nil || planned == nil || observed == nil {
		return nil
	}
	options := plannerOptions(v)
	if options == nil {
		return nil
	}
	return &sharedProgram{env: *env, program: v, planner: *planner, options: options}
}

// plannerOptions returns the options with which cel-go plans the expressions of a program; nil for other options
// than those of Kubernetes.
func plannerOptions(v reflect.Value) []interpreter.PlannerOption {
	evaluation := unexportedField[cel.EvalOption](v, "evalOpts")
	decorators := unexportedField[[]interpreter.PlannerOption](v, "plannerOptions")
	regexes := unexportedField[[]*interpreter.RegexOptimization](v, "regexOptimizations")
	frequency := unexportedField[uint](v, "interruptCheckFrequency")
	defaults := unexportedField[cel.Activation](v, "defaultVars")
	estimator := unexportedField[interpreter.ActualCostEstimator](v, "callCostEstimator")
	costs := unexportedField[[]interpreter.CostTrackerOption](v, "costOptions")
	limit := unexportedField[*uint64](v, "costLimit")
	switch {
	case evaluation == nil, decorators == nil, regexes == nil, frequency == nil:
		return nil
	case defaults == nil, estimator == nil, costs == nil, limit == nil:
		return nil
	case *evaluation != cel.OptOptimize|cel.OptTrackCost, *frequency == 0, *limit == nil, *defaults != nil:
		return nil
	}
	counting := append(slices.Clone(*costs), interpreter.CostTrackerLimit(**limit))
	tracker, err := interpreter.NewCostTracker(*estimator, counting...)
	if err != nil {
		return nil
	}
	return append(
		slices.Clone(*decorators), // the order of cel-go
		interpreter.InterruptableEval(),
		interpreter.Optimize(),
		interpreter.CompileRegexConstants(*regexes...),
		interpreter.CostObserver(interpreter.CostTrackerFactory(tracker.Clone)),
	)
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
	*unexportedField[interpreter.InterpretableV2](copied.Elem(), "interpretable") = planned
	observed, _ := planned.(*interpreter.ObservableInterpretable)
	*unexportedField[*interpreter.ObservableInterpretable](copied.Elem(), "observable") = observed
	program, _ := copied.Interface().(cel.Program)
	return program, nil
}

// unexportedField returns a field of a struct, which need not be exported; nil if there is none of that type.
func unexportedField[T any](of reflect.Value, name string) *T {
	f := of.FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil
	}
	return (*T)(f.Addr().UnsafePointer())
}
