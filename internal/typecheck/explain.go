package typecheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

var (
	missingField    = regexp.MustCompile(`^undefined field '`)
	noOverload      = regexp.MustCompile(`^found no matching overload for '(.*)' applied to '(.*)'$`)
	noRange         = regexp.MustCompile(`^expression of type '(.*)' cannot be range of a comprehension`)
	noFields        = regexp.MustCompile(`^type '(.*)' does not support field selection$`)
	mismatchedField = regexp.MustCompile(`^expected type of field '(.*)' is '(.*)' but provided type is '(.*)'$`)
	structure       = regexp.MustCompile(`\b(Object|Params)\b`)
)

func isMissingField(message string) bool { return missingField.MatchString(message) }

// forMaps are functions that take a map where the check of types has an object. When
// expressions are evaluated, objects are maps, and nothing is wrong with these.
func forMaps() []string {
	return []string{
		operators.Index, operators.OptIndex, operators.OptSelect, operators.In, operators.Equals, operators.NotEquals,
		operators.Conditional, operators.Add, "size", "orValue", "or", "optional.of", "optional.ofNonZeroValue", "transformList", "dyn",
	}
}

// explain returns a readable form of a compiler message. It is empty for a message about an
// object that can be a map.
func explain(message string) string {
	if m := noOverload.FindStringSubmatch(message); m != nil {
		if structure.MatchString(m[2]) && slices.Contains(forMaps(), m[1]) {
			return ""
		}
		if symbol, ok := operators.FindReverse(m[1]); ok && symbol != "" {
			return fmt.Sprintf("the operator %s does not take %s", symbol, m[2])
		}
		return fmt.Sprintf("the function %s does not take %s", m[1], m[2])
	}
	if m := noRange.FindStringSubmatch(message); m != nil {
		if structure.MatchString(m[1]) {
			return ""
		}
		return fmt.Sprintf("a macro such as all or exists takes a list or a map, and not %s", m[1])
	}
	if m := noFields.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s has no fields", m[1])
	}
	return message
}

// explainMisfit is explain for a value that does not fit a field of an initialiser. A map
// fits an object.
func (r *resolver) explainMisfit(text *cel.Ast, issue *cel.Error) (explained string, ok bool) {
	m := mismatchedField.FindStringSubmatch(issue.Message)
	if m == nil {
		return "", false
	}
	name, want, got := m[1], m[2], m[3]
	if structure.MatchString(want) && (strings.HasPrefix(got, "map(") || strings.HasPrefix(got, "list(map(")) {
		return "", true
	}
	if text != nil {
		if field, found := r.initialised(text.NativeRep().Expr(), issue.ExprID); found {
			name = field.path
		}
	}
	return fmt.Sprintf("the field %s takes %s, and the value is %s", name, want, got), true
}

// position ends a message with the place in the expression.
func position(e *expression, at common.Location) string {
	if strings.Contains(strings.TrimSpace(e.text), "\n") {
		return fmt.Sprintf(" at line %d, column %d", at.Line(), at.Column()+1)
	}
	return fmt.Sprintf(" at column %d", at.Column()+1)
}

// initialised returns the node of the field that an initialiser sets, by the ID of the
// initialiser's entry.
func (r *resolver) initialised(expr ast.Expr, id int64) (found node, ok bool) {
	ast.PostOrderVisit(expr, ast.NewExprVisitor(func(e ast.Expr) {
		if ok || e.Kind() != ast.StructKind {
			return
		}
		for _, f := range e.AsStruct().Fields() {
			if f.ID() == id {
				found, ok = r.at(e.AsStruct().TypeName() + "." + f.AsStructField().Name())
			}
		}
	}))
	return found, ok
}

// at returns the node of a type of an object, such as Object.spec.containers, which is the list.
func (r *resolver) at(typeName string) (node, bool) {
	names := strings.Split(typeName, ".")
	if names[0] != objectType {
		return node{}, false
	}
	at := r.object
	for _, name := range names[1:] {
		next, ok := at.inner().field(name)
		if !ok {
			return node{}, false
		}
		at = next
	}
	return at, true
}
