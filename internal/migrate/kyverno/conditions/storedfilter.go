package conditions

import (
	"strings"

	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// StoredFilter is what the filter of a list says about its elements. Each element that passes the filter
// satisfies it, and it never fails.
type StoredFilter struct {
	// Where is about the element.
	Where ce.Expression
	// Stored and Requested are texts that are equal, the first of the element; empty without any.
	Stored, Requested []ce.Expression
}

// StoredFilterOf returns what the first filter of an expression says about the elements of a list in the
// field items, which the expression reads once. The element has a variable and a shape that is known.
func (s *Scope) StoredFilterOf(source, variable string, shape ce.Shape) StoredFilter {
	f := StoredFilter{Where: ce.True()}
	node, err := jmespath.NewParser().Parse(withoutValues(source))
	if err != nil || shape.Kind() != ce.KindMap || strings.Count(source, "items") != 1 {
		return f
	}
	for node.NodeType != jmespath.ASTFilterProjection {
		switch node.NodeType {
		case jmespath.ASTPipe, jmespath.ASTSubexpression, jmespath.ASTProjection, jmespath.ASTFlatten, jmespath.ASTIndexExpression:
			node = node.Children[0]
		default:
			return f
		}
	}
	if list := node.Children[0]; list.NodeType == jmespath.ASTField && list.Value == "items" {
		element := placeValue(ce.VariablePlace(variable, shape))
		s.addFilter(&f, node.Children[2], &element)
	}
	return f
}

// addFilter adds the parts of a condition that all have to be true, up to the first one whose evaluation can
// fail: it fails for elements that later parts leave out. It reports whether there is none.
func (s *Scope) addFilter(f *StoredFilter, n jmespath.ASTNode, element *Value) bool {
	if n.NodeType == jmespath.ASTAndExpression {
		return s.addFilter(f, n.Children[0], element) && s.addFilter(f, n.Children[1], element)
	}
	if n.NodeType != jmespath.ASTComparator || !isFieldPath(n.Children[0]) || n.Children[1].NodeType != jmespath.ASTLiteral {
		return false
	}
	operator, _ := operatorOf(n)
	text, _ := n.Children[1].Value.(string)
	v, err := s.compile(n.Children[0], element)
	if operator != "==" || text == "" || err != nil || v.place == nil || v.kind() != ce.KindString {
		return true // which only leaves out fewer elements
	}
	stored := v.place.Or(`""`)
	if !strings.Contains(text, "{{") {
		f.Where = ce.And(f.Where, ce.Relate(stored, "==", ce.Quote(text)))
		return true
	}
	requested, err := s.Text(text)
	if err != nil || requested.kind() != ce.KindString {
		return true
	}
	if e, err := requested.strict(); err == nil {
		f.Stored, f.Requested = append(f.Stored, stored), append(f.Requested, e)
	}
	return true
}

// isFieldPath reports whether a node only selects fields.
func isFieldPath(n jmespath.ASTNode) bool {
	switch n.NodeType {
	case jmespath.ASTField:
		return true
	case jmespath.ASTSubexpression:
		return isFieldPath(n.Children[0]) && isFieldPath(n.Children[1])
	}
	return false
}
