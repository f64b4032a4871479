package conditions

import (
	"slices"

	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// takesNull reports whether a function has a result for null.
func takesNull(function any) bool {
	return slices.Contains([]any{"not_null", "to_array", "to_string"}, function)
}

// filterCanFail reports whether the evaluation of a filter can fail for an element, which fails that of the
// whole list. Fields that are absent are null in filters, and most functions fail for null.
func (s *Scope) filterCanFail(n jmespath.ASTNode, element *Value) bool {
	canFail := func(child jmespath.ASTNode) bool { return s.filterCanFail(child, element) }
	if n.NodeType == jmespath.ASTFunctionExpression && !takesNull(n.Value) {
		canFail = func(argument jmespath.ASTNode) bool { return s.argumentCanFail(argument, element) }
	}
	return slices.ContainsFunc(n.Children, canFail)
}

// argumentCanFail reports whether an argument of a function can be one for which the function fails.
func (s *Scope) argumentCanFail(n jmespath.ASTNode, element *Value) bool {
	switch {
	case n.NodeType == jmespath.ASTLiteral:
		return false
	case n.NodeType == jmespath.ASTFunctionExpression:
		return s.filterCanFail(n, element)
	case n.NodeType == jmespath.ASTCurrentNode || n.NodeType == jmespath.ASTIdentity || isFieldPath(n):
		v, err := s.compile(n, element)
		return err != nil || v.mayBeAbsent() || v.kind() == ce.KindAny
	}
	return true
}

// projectNulls considers the null that stands for each absent list of several joined ones. A projection leaves
// null out, except one whose function fails for null.
func (s *elementStream) projectNulls(projected jmespath.ASTNode) error {
	areAlwaysPresent := !slices.ContainsFunc(s.source.lists, Value.mayBeAbsent)
	switch {
	case areAlwaysPresent || !callsFunction(projected):
		return nil
	case failsForNull(projected):
		s.needsAll, s.fails = true, true
		return nil
	}
	return leftOut("a function that takes the null of an absent list for an element")
}

// failsForNull reports whether the evaluation of a node surely fails for null.
func failsForNull(n jmespath.ASTNode) bool {
	switch n.NodeType {
	case jmespath.ASTSubexpression:
		return failsForNull(n.Children[0]) || isFieldPath(n.Children[0]) && failsForNull(n.Children[1])
	case jmespath.ASTFunctionExpression:
		first := n.Children[0]
		isNull := first.NodeType == jmespath.ASTCurrentNode || isFieldPath(first)
		return !takesNull(n.Value) && (isNull || failsForNull(first))
	}
	return false
}
