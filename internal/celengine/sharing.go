package celengine

import (
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
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
		decls := celplugin.OptionalVariableDeclarations{
			HasParams:     i&1 != 0,
			HasAuthorizer: i&2 != 0,
			HasPatchTypes: i&4 != 0,
		}
		out.shared[decls] = sync.OnceValue(func() *sharedProgram {
			example := &matchconditions.MatchCondition{Expression: "true"}
			first := c.CompileCELExpression(example, decls, environment.StoredExpressions)
			return newSharedProgram(first.Program)
		})
	}
	return out
}

// CompileCELExpression implements celplugin.Compiler. The compiler of Kubernetes makes the
// errors, and the programs that cannot share.
func (c sharingCompiler) CompileCELExpression(
	accessor celplugin.ExpressionAccessor,
	decls celplugin.OptionalVariableDeclarations,
	mode environment.Type,
) celplugin.CompilationResult {
	var parsed *cel.Ast
	if p, ok := accessor.(parsedAccessor); ok {
		accessor, parsed = p.ExpressionAccessor, p.parsed
	}
	if shared := c.shared[decls](); shared != nil && mode == environment.StoredExpressions {
		checked, issues := shared.check(accessor.GetExpression(), parsed)
		if issues == nil && returns(accessor, checked.OutputType()) {
			if program, err := shared.plan(checked); err == nil {
				return celplugin.CompilationResult{
					Program:            program,
					ExpressionAccessor: accessor,
					OutputType:         checked.OutputType(),
				}
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
	return slices.ContainsFunc(accessor.ReturnTypes(), func(t *cel.Type) bool {
		return out.IsExactType(t) || cel.AnyType.IsExactType(t)
	})
}
