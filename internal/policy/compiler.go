package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// maxErrorDetail bounds, in bytes, what a compiler's complaint about one
// expression adds to a status condition, which holds at most 32 KiB in all.
const maxErrorDetail = 2048

// Compiler turns policies into their compiled form. It shares environments and
// programs between policies, since building them is most of the cost of
// compiling and most of the memory of the result. It is safe for concurrent use.
type Compiler struct {
	environment *environment.EnvSet
	compiler    celplugin.Compiler
	programs    *programCache
}

// NewCompiler returns a compiler for the CEL environment of the API server
// release that this program was built with.
func NewCompiler() *Compiler {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	return &Compiler{
		environment: env,
		compiler:    celplugin.NewCompiler(env),
		programs:    newProgramCache(),
	}
}

// Compile compiles a policy. It always returns a result: where an expression
// does not compile, the errors say which and why, and the result answers every
// request it matches with that error under the policy's failurePolicy, as the
// API server does for a stored policy that it cannot compile.
// The policy is neither changed nor kept.
func (c *Compiler) Compile(p *v1alpha1.WebhookPolicy) (*Compiled, field.ErrorList) {
	b := &builder{policy: p, compile: c.shared}
	if len(p.Spec.Variables) > 0 {
		if err := b.declareVariables(c.environment); err != nil {
			b.errs = append(b.errs, field.InternalError(field.NewPath("spec", "variables"), err))
		}
	}
	return b.build(), b.errs
}

// shared compiles an expression that reads no variables, or finds the program
// that another policy has compiled for the same one.
func (c *Compiler) shared(accessor celplugin.ExpressionAccessor, decls celplugin.OptionalVariableDeclarations) *program {
	key := programKey{expression: accessor.GetExpression(), kind: fmt.Sprintf("%T", accessor), decls: decls}
	return c.programs.get(key, func() *program {
		return &program{result: c.compiler.CompileCELExpression(accessor, decls, environment.StoredExpressions)}
	})
}

// truncate cuts s to at most limit bytes, at a rune's start, and says so.
func truncate(s string, limit int) string {
	const mark = "..."
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + mark
}
