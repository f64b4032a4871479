package uncounted

import (
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Sizes returns for how many sizes of requests the bounds permit an evaluation without counting costs, and how many
// sizes there are.
func (p *Policy) Sizes() (fit, all int) {
	for _, fits := range p.fits {
		if fits {
			fit++
		}
	}
	return fit, classes
}

// Unbounded returns why the cost of an expression of a policy has to be counted for every request; "" if it has not. For
// a long expression it takes long, so it is not for requests.
func (c *Compiler) Unbounded(p *Policy, e *Expression, parsed *cel.Ast) string {
	if p.Reads(e, Authorizer) {
		return ""
	}
	u, err := c.compileNew(parsed)
	if err != nil {
		return err.Error()
	}
	least := u.bounds[0]
	if known, ok := p.least[e]; ok {
		least = known
	}
	if least <= celconfig.PerCallLimit/margin {
		return ""
	}
	if !math.IsInf(least, 1) {
		return fmt.Sprintf("its cost can be %.0f, and half of the limit is %d", least, celconfig.PerCallLimit/margin)
	}
	if name := unboundedFunction(parsed.NativeRep().Expr()); name != "" {
		return fmt.Sprintf("the cost of %s has no bound", name)
	}
	return "its cost has no bound"
}

// unboundedFunction returns the name of the first function whose cost has no bound although those of its arguments have
// one; "" if there is none.
func unboundedFunction(root ast.Expr) (name string) {
	found := false
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if found {
			return
		}
		cost, _ := bound(e, Class(0).extent(), nil)
		found = math.IsInf(cost, 1)
		if found && e.Kind() == ast.CallKind {
			name = e.AsCall().FunctionName()
		}
	}))
	return name
}
