package policy

import (
	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// maxErrorDetail is the maximum of bytes that the error of one expression adds to a
// status condition, which holds at most 32 KiB.
const maxErrorDetail = 2048

// Engine is the minor version of Kubernetes whose engine expressions behave like.
type Engine = celengine.Engine

// OldestEngine and LatestEngine are the first and the last engine that Ostiary knows.
const (
	OldestEngine = celengine.OldestEngine
	LatestEngine = celengine.LatestEngine
)

// Compiler compiles policies. Policies share environments and programs, which take most
// of the time and of the memory. It is safe for concurrent use.
type Compiler struct {
	counted   *celengine.Compiler
	uncounted *uncounted.Compiler
	states    *celengine.Compiler // see NewTracingCompiler; nil otherwise
}

// NewCompiler returns a compiler for the latest engine.
func NewCompiler() *Compiler { return NewCompilerFor(LatestEngine) }

// NewCompilerFor returns a compiler whose programs behave like those of an engine.
func NewCompilerFor(e Engine) *Compiler {
	counted := celengine.NewCompiler(e)
	withoutCosts, err := uncounted.NewCompiler(counted.Environment())
	if err != nil {
		panic(err) // it depends on this program alone
	}
	return &Compiler{counted: counted, uncounted: withoutCosts}
}

// NewTracingCompiler returns a compiler like that of NewCompilerFor, whose policies report
// their evaluations to the Trace of the context. They evaluate each policy alone, and give
// the same results.
//
// A CEL program cannot count its cost and keep the values of sub-expressions, so each
// expression has a second program for these, which runs after the one that decides.
func NewTracingCompiler(e Engine) *Compiler {
	c := NewCompilerFor(e)
	c.states = celengine.NewCompiler(e, cel.EvalOptions(cel.OptTrackState))
	return c
}

// Engine returns the engine that the programs behave like.
func (c *Compiler) Engine() Engine { return c.counted.Engine() }

// Condition compiles the condition of an exception, which can read only object and oldObject.
func (c *Compiler) Condition(expression string) *celengine.Program {
	return c.counted.Condition(expression)
}

// Parse parses an expression as the compiler does, so that its ids are those of a trace.
func (c *Compiler) Parse(expression string) (*cel.Ast, error) { return c.counted.Parse(expression) }

// Compile compiles a policy. It always returns a result: if an expression does not
// compile, the errors contain the field and the reason, and failurePolicy decides every
// request of the result, as the API server does for a stored policy that does not
// compile. Compile neither changes nor keeps the policy.
func (c *Compiler) Compile(p *v1alpha1.WebhookPolicy) (*Compiled, field.ErrorList) {
	return c.CompilePlugin(p, nil, nil)
}

// CompilePlugin compiles a policy that names a plugin, which decides the requests that
// satisfy the matchConditions. Errors of its configuration count as errors of
// expressions.
func (c *Compiler) CompilePlugin(p *v1alpha1.WebhookPolicy, plugin pluginapi.Plugin, errs field.ErrorList) (*Compiled, field.ErrorList) {
	b := newBuilder(p, c)
	b.errs = errs
	parsed, err := celsyntax.Parse(c.counted.SyntaxEnv(), &p.Spec)
	if b.parsed = parsed; err != nil {
		b.errs = append(b.errs, err)
		b.policy = withoutExpressions(p)
	}
	b.declareLookups()
	b.declareVariables()
	out := b.build()
	out.plugin = plugin
	if p.Spec.Plugin != nil {
		unmanaged := unstructuredjson.Without("metadata", "managedFields") // often half of an object
		out.reads = out.reads.with(inputs{object: unmanaged, oldObject: unmanaged, values: true})
		out.quick = nil
	}
	return out, b.hinted()
}

// withoutExpressions returns a copy of a policy without expressions.
func withoutExpressions(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	out := *p
	out.Spec.Variables, out.Spec.MatchConditions, out.Spec.Validations = nil, nil, nil
	out.Spec.AuditAnnotations, out.Spec.Mutations, out.Spec.Lookups = nil, nil, nil
	return &out
}
