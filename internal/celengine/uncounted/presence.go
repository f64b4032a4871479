package uncounted

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// presenceOf is a function in place of has(), which no expression can name. Its arguments are what has the field, the
// name of the field, and has() itself for values that are no JSON objects.
const presenceOf = "@has"

// presenceArgs returns the arguments for has(), nil for another expression and for one that does not select from a
// JSON object.
func presenceArgs(e ast.Expr, exprs ast.ExprFactory) []ast.Expr {
	if e.Kind() != ast.SelectKind || !e.AsSelect().IsTestOnly() || !isPath(e.AsSelect().Operand()) {
		return nil
	}
	name := exprs.NewLiteral(0, types.String(e.AsSelect().FieldName()))
	return []ast.Expr{e.AsSelect().Operand(), name, exprs.CopyExpr(e)}
}

// isPath reports whether an expression is a name, or fields of a name, and not the request, which is no JSON object.
func isPath(e ast.Expr) bool {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent() != celplugin.RequestVarName
	case ast.SelectKind:
		return !e.AsSelect().IsTestOnly() && isPath(e.AsSelect().Operand())
	}
	return false
}

// presence evaluates such a call.
type presence struct {
	id      int64
	operand interpreter.InterpretableV2
	field   ref.Val
	library interpreter.InterpretableV2
}

// presenceFrom returns nil for the call of another function.
func presenceFrom(call interpreter.InterpretableCall) *presence {
	args := call.Args()
	if call.Function() != presenceOf || len(args) != 3 {
		return nil
	}
	field, ok := args[1].(interpreter.InterpretableConst)
	if !ok {
		return nil
	}
	return &presence{id: call.ID(), operand: args[0], field: field.Value(), library: args[2]}
}

// ID implements interpreter.Interpretable.
func (p *presence) ID() int64 { return p.id }

// Eval implements interpreter.Interpretable.
func (p *presence) Eval(vars interpreter.Activation) ref.Val {
	return p.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (p *presence) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	switch value := p.operand.Exec(frame).(type) {
	case *jsonObject:
		return value.Contains(p.field)
	case *types.Err:
		if IsExact(value) {
			return value
		}
	}
	return p.library.Exec(frame)
}
