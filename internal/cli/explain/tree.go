// Package explain is the command explain, and finds the parts of expressions that decide.
package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxValue is the maximum of bytes of a value.
	maxValue = 200
	// maxNodes is the maximum number of parts of an expression.
	maxNodes = 500
)

// Node is a part of an expression with its value.
type Node struct {
	Text string `json:"text"`
	// Value is the value in JSON, an error, or empty for a part that was not evaluated or
	// is a step of an authorization check. In a loop it is that of the last element.
	Value    string  `json:"value,omitempty"`
	Children []*Node `json:"children,omitempty"`

	value    ref.Val // nil if it is not known
	function string  // of a call
}

// equal reports whether two parts are shown equally.
func (n *Node) equal(o *Node) bool {
	return n.Text == o.Text && n.Value == o.Value && slices.EqualFunc(n.Children, o.Children, (*Node).equal)
}

// tree makes the nodes of one expression.
type tree struct {
	info  *ast.SourceInfo
	state interpreter.EvalState
	nodes int
}

// newTree returns the parts of an evaluated expression.
func newTree(compiler *policy.Compiler, expression string, e policy.Evaluated) (*Node, error) {
	parsed, err := compiler.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", e.Field, err)
	}
	t := &tree{info: parsed.NativeRep().SourceInfo(), state: e.State}
	root := t.node(parsed.NativeRep().Expr())
	if root == nil { // a literal
		root = &Node{Text: textOf(parsed)}
	}
	root.Text, root.value = strings.TrimSpace(expression), e.Value
	if root.Value = valueOf(e.Value); e.Err != nil {
		root.Value = "error: " + e.Err.Error()
	}
	return root, nil
}

func textOf(parsed *cel.Ast) string {
	text, err := cel.AstToString(parsed)
	if err != nil { // of an expression that was not parsed
		return ""
	}
	return text
}

// node returns the node of a part, nil for a literal.
func (t *tree) node(e ast.Expr) *Node {
	shown := e
	macro, isMacro := t.info.GetMacroCall(e.ID())
	if isMacro {
		shown = macro // as it is written
	}
	if t.nodes++; isConstant(shown) || t.nodes > maxNodes {
		return nil
	}
	text, err := parser.Unparse(e, t.info)
	if err != nil {
		return nil
	}
	n := &Node{Text: text}
	if t.state != nil {
		if value, ok := t.state.Value(e.ID()); ok {
			n.value, n.Value = value, valueOf(value)
		}
	}
	t.addChildren(n, shown, isMacro)
	return n
}

// addChildren adds the parts of a part.
func (t *tree) addChildren(n *Node, shown ast.Expr, isMacro bool) {
	switch shown.Kind() {
	case ast.CallKind:
		call := shown.AsCall()
		n.function = call.FunctionName()
		if call.IsMemberFunction() {
			n.add(t.node(call.Target()))
		}
		for i, arg := range call.Args() {
			if !isMacro || i > 0 || arg.Kind() != ast.IdentKind { // the variable of a loop
				n.add(t.node(arg))
			}
		}
	case ast.SelectKind:
		n.add(t.operand(shown.AsSelect().Operand()))
	case ast.ListKind:
		for _, element := range shown.AsList().Elements() {
			n.add(t.node(element))
		}
	}
}

// isConstant reports whether a part is a literal or an empty list.
func isConstant(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind || e.Kind() == ast.ListKind && e.AsList().Size() == 0
}

// operand returns the node of what a field is selected from. A chain of fields is one
// part.
func (t *tree) operand(e ast.Expr) *Node {
	for e.Kind() == ast.SelectKind {
		e = e.AsSelect().Operand()
	}
	if e.Kind() == ast.IdentKind {
		return nil
	}
	return t.node(e)
}

func (n *Node) add(child *Node) {
	if child != nil {
		n.Children = append(n.Children, child)
	}
}

// valueOf returns a value in JSON.
func valueOf(value ref.Val) string {
	switch value := value.(type) {
	case nil:
		return ""
	case *types.Err:
		return "error: " + truncate.String(value.Error(), maxValue)
	case *types.Unknown:
		return ""
	case *types.Optional:
		if !value.HasValue() {
			return "optional.none()"
		}
		return "optional.of(" + valueOf(value.GetValue()) + ")"
	}
	if strings.HasPrefix(value.Type().TypeName(), "kubernetes.authorization.") {
		return "" // a step of a check, without a value to show
	}
	if list, ok := value.Value().([]string); ok {
		value = types.DefaultTypeAdapter.NativeToValue(list)
	}
	native, err := value.ConvertToNative(types.JSONValueType)
	if err != nil {
		return "a value of type " + value.Type().TypeName()
	}
	text, err := json.Marshal(native)
	if err != nil {
		return "a value of type " + value.Type().TypeName()
	}
	return truncate.String(string(text), maxValue)
}

// Blame returns the smallest parts that made an expression false.
func (n *Node) Blame() []*Node {
	if n.value != types.False {
		return nil
	}
	switch n.function {
	case operators.LogicalAnd:
		for _, c := range n.Children {
			if found := c.Blame(); found != nil {
				return found
			}
		}
	case operators.LogicalOr:
		var out []*Node
		for _, c := range n.Children {
			out = append(out, c.Blame()...)
		}
		if out != nil {
			return out
		}
	case operators.Conditional:
		for _, c := range n.Children[min(1, len(n.Children)):] {
			if found := c.Blame(); found != nil {
				return found
			}
		}
	case operators.All:
		if last := n.Children[len(n.Children)-1]; len(n.Children) > 1 && last.value == types.False {
			return append([]*Node{n}, last.Blame()...)
		}
	}
	return []*Node{n}
}

// Describe returns a part with the values of the parts in it, on one line.
func (n *Node) Describe() string {
	var values []string
	seen := map[string]bool{}
	var collect func(c *Node)
	collect = func(c *Node) {
		if c.Value != "" && !seen[c.Text] && len(values) < 6 {
			seen[c.Text] = true
			values = append(values, c.Text+" = "+c.Value)
		}
		for _, child := range c.Children {
			collect(child)
		}
	}
	for _, c := range n.Children {
		collect(c)
	}
	out := n.Text + " is " + n.Value
	if len(values) > 0 {
		out += ", with " + strings.Join(values, ", ")
	}
	return out
}
