package celengine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/weakcache"
)

const (
	// maxStoredCost is the cost of one expression over a stored object: a tenth of that of an expression of a request,
	// because each change of each object of a resource evaluates it.
	maxStoredCost = 100_000
	// storedCheckFrequency is the number of steps of a loop after which it ends if the context has ended, as in requests.
	storedCheckFrequency = 100
)

// StoredProgram is an expression over the objects of a resource, which only it can read.
type StoredProgram struct {
	program cel.Program
	result  *cel.Type
}

// storedCompiler compiles expressions over stored objects. Its environment is made at the first use.
type storedCompiler struct {
	environment func() (*storedEnvironment, error)
	programs    *weakcache.Cache[string, StoredProgram]
}

type storedEnvironment struct {
	env    *cel.Env
	shared *sharedProgram // nil if programs cannot share
}

func newStoredCompiler(from *environment.EnvSet) storedCompiler {
	return storedCompiler{
		environment: sync.OnceValues(func() (*storedEnvironment, error) { return newStoredEnvironment(from) }),
		programs:    weakcache.New[string, StoredProgram](),
	}
}

func newStoredEnvironment(from *environment.EnvSet) (*storedEnvironment, error) {
	set, err := from.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(celsyntax.StoredVarName, cel.DynType)},
	}, environment.StrictCostOpt)
	if err != nil {
		return nil, fmt.Errorf("preparing expressions over stored objects: %w", err)
	}
	out := &storedEnvironment{env: set.StoredExpressionsEnv()}
	example, issues := out.env.Compile("true")
	if issues.Err() != nil {
		return nil, fmt.Errorf("preparing expressions over stored objects: %w", issues.Err())
	}
	first, err := out.separate(example)
	if err != nil {
		return nil, err
	}
	out.shared = newSharedProgram(first)
	return out, nil
}

// separate returns a program that shares no tables with others.
func (e *storedEnvironment) separate(checked *cel.Ast) (cel.Program, error) {
	p, err := e.env.Program(checked, cel.CostLimit(maxStoredCost), cel.InterruptCheckFrequency(storedCheckFrequency))
	if err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	return p, nil
}

func (e *storedEnvironment) plan(checked *cel.Ast) (cel.Program, error) {
	if e.shared == nil {
		return e.separate(checked)
	}
	return e.shared.plan(checked)
}

// Stored compiles an expression over a stored object, or returns the shared program of an equal one.
func (c *Compiler) Stored(expression string) (*StoredProgram, error) {
	if p, ok := c.stored.programs.Find(expression); ok {
		return p, nil
	}
	p, err := c.stored.compile(expression)
	if err != nil {
		return nil, err
	}
	return c.stored.programs.Get(expression, func() *StoredProgram { return p }), nil
}

func (c storedCompiler) compile(expression string) (*StoredProgram, error) {
	e, err := c.environment()
	if err != nil {
		return nil, err
	}
	out := &StoredProgram{}
	result := compile(nil, func() (result celplugin.CompilationResult) {
		checked, issues := e.env.Compile(expression)
		err = issues.Err()
		if err == nil {
			out.result = checked.OutputType()
			out.program, err = e.plan(checked)
		}
		if err != nil {
			result.Error = &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: "compilation failed: " + err.Error()}
		}
		return result
	})
	if result.Error != nil {
		return nil, errors.New(result.Error.Detail)
	}
	return out, nil
}

// ResultType is the type of the result, which can be dynamic.
func (p *StoredProgram) ResultType() *cel.Type { return p.result }

// Evaluate returns the result for an object, or an error if the evaluation fails, costs too much or is canceled. It does
// not change the object.
func (p *StoredProgram) Evaluate(ctx context.Context, object map[string]any) (ref.Val, error) {
	value, _, err := p.program.ContextEval(ctx, map[string]any{celsyntax.StoredVarName: common.SchemalessTypedToVal(object)})
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, errors.New("no result")
	}
	return value, nil
}
