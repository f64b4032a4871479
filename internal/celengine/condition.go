package celengine

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Condition compiles a condition that can read only object and oldObject, or returns the shared
// program of an equal one.
func (c *Compiler) Condition(expression string) *Program {
	accessor := &matchconditions.MatchCondition{Expression: expression}
	checked := compile(accessor, func() celplugin.CompilationResult {
		out := celplugin.CompilationResult{ExpressionAccessor: accessor}
		env, err := c.objectsOnly()
		if err == nil {
			_, issues := env.Compile(expression)
			err = issues.Err()
		}
		if err != nil {
			out.Error = &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: "compilation failed: " + err.Error()}
		}
		return out
	})
	if checked.Error != nil {
		return &Program{Result: checked}
	}
	return c.Expression(KnownVariables{}, accessor, celplugin.OptionalVariableDeclarations{}, nil)
}

// newObjectsOnly returns an environment that declares only the objects of a request.
func newObjectsOnly(from *environment.EnvSet) (*cel.Env, error) {
	set, err := from.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable(celplugin.ObjectVarName, cel.DynType),
			cel.Variable(celplugin.OldObjectVarName, cel.DynType),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing conditions: %w", err)
	}
	return set.StoredExpressionsEnv(), nil
}
