package conditions

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// LeftOutError is about a part of a policy that CEL cannot express exactly.
type LeftOutError struct{ What string }

// Error implements error.
func (e *LeftOutError) Error() string { return e.What + " is left out: CEL has no exact counterpart" }

func leftOut(format string, arguments ...any) error {
	return &LeftOutError{What: fmt.Sprintf(format, arguments...)}
}

// Limits of expressions.
const (
	maxSource = 10_000
	maxDepth  = 50
)

// Scope has the variables of expressions. Names that it does not have are left out.
type Scope struct {
	Variables map[string]Value
	// Unsupported are variables that are left out, with the reason.
	Unsupported map[string]string
	// Notes collects differences to report. It must not be nil.
	Notes *[]string
	// Define adds a variable to the policy, with a name like a proposed one, and returns the
	// name. Without it, expressions have no variables of their own.
	Define func(name, expression string) string
	// Containers returns a list of containers of the object, and its JMESPath expression.
	Containers func(list string) (containers Value, source string, ok bool)
	// List is the list of which the variable element is an element.
	List string

	reads  map[string][]*Reads
	nested *[]Value
	used   map[string]bool
	depth  *int
}

// With returns a scope with one more variable.
func (s *Scope) With(name string, v Value) *Scope {
	inner := s.copied()
	inner.Variables = map[string]Value{name: v}
	for n, value := range s.Variables {
		if n != name {
			inner.Variables[n] = value
		}
	}
	if s.reads[name] != nil {
		return inner.WithReads(name, nil)
	}
	return inner
}

// copied returns a copy that shares the names of the variables that expressions define.
func (s *Scope) copied() *Scope {
	if s.used == nil {
		s.used = map[string]bool{}
	}
	inner := *s
	return &inner
}

func (s *Scope) note(format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	for _, n := range *s.Notes {
		if n == text {
			return
		}
	}
	*s.Notes = append(*s.Notes, text)
}

// variable returns an unused name for the elements of a list.
func (s *Scope) variable(v Value) string {
	name := "item"
	if v.place != nil {
		name = ce.Singular(v.place.Name(), name)
	} else if v.lists != nil {
		name = "container"
		for _, l := range v.lists {
			if l.place == nil || !strings.HasSuffix(strings.ToLower(l.place.Name()), "containers") {
				name = "item"
			}
		}
	}
	unique := name
	for i := 2; s.used[unique]; i++ {
		unique = name + strconv.Itoa(i)
	}
	if s.used == nil {
		s.used = map[string]bool{}
	}
	s.used[unique] = true
	return unique
}

// JMESPath converts an expression.
func (s *Scope) JMESPath(source string) (Value, error) {
	v, err := s.Definition(source)
	if err == nil {
		readWhole(s.ReadBy(source))
	}
	return v, err
}

// Definition converts an expression without a record of what is read of its result: see ReadBy.
func (s *Scope) Definition(source string) (Value, error) {
	if len(source) > maxSource {
		return Value{}, fmt.Errorf("the expression has more than %d bytes: split it", maxSource)
	}
	s, source, err := s.withoutLiterals(source)
	if err != nil {
		return Value{}, err
	}
	node, err := jmespath.NewParser().Parse(strings.TrimSpace(source))
	if err != nil {
		return Value{}, fmt.Errorf("parsing the JMESPath expression %q: %w", source, err)
	}
	return s.compile(node, nil)
}

// compile converts a node. Without a current value, the current value is the root, which
// has the variables.
func (s *Scope) compile(n jmespath.ASTNode, current *Value) (Value, error) {
	if s.depth == nil {
		s.depth = new(int)
	}
	*s.depth++
	defer func() { *s.depth-- }()
	if *s.depth > maxDepth {
		return Value{}, fmt.Errorf("the expression has more than %d levels: split it", maxDepth)
	}
	return s.node(n, current)
}

func (s *Scope) node(n jmespath.ASTNode, current *Value) (Value, error) {
	if current == nil {
		if v, ok, err := s.images(n); ok {
			return v, err
		}
	}
	switch n.NodeType {
	case jmespath.ASTField:
		return s.field(n.Value.(string), current)
	case jmespath.ASTSubexpression, jmespath.ASTIndexExpression:
		return s.sub(n, current)
	case jmespath.ASTIdentity, jmespath.ASTCurrentNode:
		return currentNode(current)
	case jmespath.ASTLiteral:
		return s.literalNode(n)
	case jmespath.ASTPipe:
		return s.pipe(n, current)
	case jmespath.ASTIndex:
		return elementAt(n.Value.(int), current)
	case jmespath.ASTProjection, jmespath.ASTFilterProjection, jmespath.ASTFlatten, jmespath.ASTValueProjection:
		return s.projection(n, current)
	case jmespath.ASTMultiSelectList:
		return s.lists(n, current)
	case jmespath.ASTFunctionExpression:
		return s.function(n, current)
	case jmespath.ASTOrExpression:
		return s.orExpression(n, current)
	case jmespath.ASTAndExpression, jmespath.ASTNotExpression, jmespath.ASTComparator:
		e, err := s.truth(n, current)
		return computedValue(e, ce.ShapeOfKind(ce.KindBool)), err
	}
	return Value{}, leftOut("the JMESPath %s", nodeName(n))
}

// pipe compiles an expression about the value of another one, which fails if that one does.
func (s *Scope) pipe(n jmespath.ASTNode, current *Value) (Value, error) {
	left, err := s.compile(n.Children[0], current)
	if err != nil {
		return Value{}, err
	}
	v, err := s.compile(n.Children[1], &left)
	if v = v.afterPipe(); left.mayFail() && !v.mayFail() {
		v = v.WithSubstituted([]Value{left})
	}
	return v, err
}

func currentNode(current *Value) (Value, error) {
	if current == nil {
		return Value{}, leftOut("the variable @")
	}
	return *current, nil
}

func nodeName(n jmespath.ASTNode) string {
	switch n.NodeType {
	case jmespath.ASTSlice:
		return "slice"
	case jmespath.ASTMultiSelectHash:
		return "multi-select hash"
	case jmespath.ASTExpRef:
		return "expression reference"
	}
	return strings.TrimPrefix(n.NodeType.String(), "AST")
}

func (s *Scope) field(name string, current *Value) (Value, error) {
	if current != nil {
		if current.stream != nil || current.lists != nil {
			return Value{}, leftOut("the field %s of a list", name)
		}
		if current.place != nil {
			if why, ok := s.Unsupported[current.place.Source().String()+"."+name]; ok {
				return Value{}, leftOut("the variable %s.%s (%s)", current.place.Source(), name, why)
			}
		}
		return current.field(name)
	}
	if v, ok := s.Variables[name]; ok {
		return v.copied(), nil
	}
	if why, ok := s.Unsupported[name]; ok {
		return Value{}, leftOut("the variable %s (%s)", name, why)
	}
	return Value{}, leftOut("the variable %s", name)
}

func (s *Scope) sub(n jmespath.ASTNode, current *Value) (Value, error) {
	left, err := s.compile(n.Children[0], current)
	if err != nil {
		return Value{}, err
	}
	right, err := s.compile(n.Children[1], &left)
	if left.place != nil && left.place.Optional() && right.isComputed() { // a function of the field
		right.when, right.absent, right.fails = ce.And(left.place.Present(), right.existence()), absentField, true
	}
	return right, err
}

func elementAt(i int, current *Value) (Value, error) {
	if current == nil || i < 0 {
		return Value{}, leftOut("the index [%d]", i)
	}
	if current.place == nil {
		e, err := current.orElse("[]")
		shape := current.shape
		if current.stream != nil {
			shape = ce.ShapeOfList(current.stream.innermost().element.shape)
		}
		return placeValue(ce.VariablePlace(e.In(ce.Primary), shape).Index(strconv.Itoa(i))), err
	}
	return placeValue(current.place.Index(strconv.Itoa(i))), nil
}

// literalNode converts a literal. Raw strings may have variables.
func (s *Scope) literalNode(n jmespath.ASTNode) (Value, error) {
	if text, ok := n.Value.(string); ok {
		return s.Text(text)
	}
	return constantValue(normalizeNumbers(n.Value)), nil
}

// normalizeNumbers makes whole numbers int64.
func normalizeNumbers(v any) any {
	switch typed := v.(type) {
	case int:
		return int64(typed)
	case float64:
		if typed == float64(int64(typed)) {
			return int64(typed)
		}
	case []any:
		out := make([]any, len(typed))
		for i := range typed {
			out[i] = normalizeNumbers(typed[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range typed {
			out[k] = normalizeNumbers(typed[k])
		}
		return out
	}
	return v
}

// literalExpression returns a constant as CEL. The elements of lists and the values of maps must have
// one type.
func literalExpression(v any) (ce.Expression, error) {
	kinds := map[ce.Kind]bool{}
	switch typed := v.(type) {
	case nil:
		return ce.Term("null"), nil
	case string:
		return ce.Quote(typed), nil
	case int64:
		return ce.Term(strconv.FormatInt(typed, 10)), nil
	case float64:
		return ce.Term(strconv.FormatFloat(typed, 'f', -1, 64)), nil
	case bool:
		return ce.Constant(typed), nil
	case []any:
		var elements []ce.Expression
		for _, element := range typed {
			e, err := literalExpression(element)
			if err != nil {
				return e, err
			}
			kinds[kindOf(element)] = true
			elements = append(elements, e)
		}
		if len(kinds) <= 1 {
			return ce.List(elements...), nil
		}
	case map[string]any:
		if len(typed) == 0 {
			return ce.Term("{}"), nil
		}
	}
	text, _ := json.Marshal(v)
	return ce.False(), leftOut("the literal %s", text)
}

// projection converts a projection to a stream.
func (s *Scope) projection(n jmespath.ASTNode, current *Value) (Value, error) {
	left, err := s.compile(n.Children[0], current)
	if err != nil {
		return Value{}, err
	}
	if n.NodeType == jmespath.ASTValueProjection {
		if left, err = valuesOfMap(left); err != nil {
			return Value{}, err
		}
	}
	if n.NodeType != jmespath.ASTProjection {
		left = left.orNull()
	}
	if n.NodeType == jmespath.ASTFlatten {
		return s.flatten(left)
	}
	v, err := s.stream(left)
	if err != nil {
		return Value{}, err
	}
	innermost := v.stream.innermost()
	element := innermost.element
	if n.NodeType == jmespath.ASTFilterProjection {
		where, err := s.truth(n.Children[2], &element)
		if err != nil {
			return Value{}, err
		}
		if s.filterCanFail(n.Children[2], &element) {
			innermost.fails, innermost.filtered = true, true
		}
		innermost.where = ce.And(innermost.where, element.present(), where)
		element = element.known()
	} else if err := innermost.projectNulls(n.Children[1]); err != nil {
		return Value{}, err
	}
	innermost.element, err = s.compile(n.Children[1], &element)
	return v, err
}

// valuesOfMap returns the values of a map as a list.
func valuesOfMap(v Value) (Value, error) {
	m, err := v.strict()
	if err != nil {
		return Value{}, err
	}
	values := ce.Macro(m, "map", "key", ce.Term(m.In(ce.Primary)+"[key]"))
	return computedValue(values, ce.ShapeOfList(v.shape.Field("")), v), nil
}

// stream makes a list a stream of its elements.
func (s *Scope) stream(v Value) (Value, error) {
	switch {
	case v.stream != nil:
		return v, nil
	case v.isConstant:
		return Value{}, leftOut("a projection of a literal")
	}
	if k := v.kind(); k != ce.KindList && k != ce.KindAny {
		return Value{}, leftOut("a projection of a value that is no list")
	}
	element := v.shape.Element()
	if v.lists != nil {
		element = v.lists[0].shape.Element()
	}
	variable := s.variable(v)
	return Value{
		stream: &elementStream{
			source:   v,
			variable: variable,
			where:    ce.True(),
			fails:    v.absent == absentFailure && v.fails,
			element:  placeValue(ce.VariablePlace(variable, element)),
		},
	}, nil
}

// flatten makes a list of lists a list.
func (s *Scope) flatten(v Value) (Value, error) {
	if v.stream == nil {
		return s.stream(v)
	}
	innermost := v.stream.innermost()
	if s := innermost.element.stream; s != nil {
		innermost.inner, innermost.element = s, Value{}
		return v, nil
	}
	if innermost.element.kind() != ce.KindList {
		return v, nil // elements that are no lists stay
	}
	inner, err := s.stream(innermost.element)
	if err != nil {
		return Value{}, err
	}
	innermost.inner, innermost.element = inner.stream, Value{}
	return v, nil
}

// lists converts [a, b], which only a flattening can follow.
func (s *Scope) lists(n jmespath.ASTNode, current *Value) (Value, error) {
	v := Value{lists: []Value{}}
	for _, c := range n.Children {
		element, err := s.compile(c, current)
		if err != nil {
			return Value{}, err
		}
		if element.kind() != ce.KindList && (element.kind() != ce.KindAny || element.place == nil) ||
			element.lists != nil {
			return Value{}, leftOut("a multi-select list of values that are no lists")
		}
		v.lists = append(v.lists, element)
	}
	return v, nil
}
