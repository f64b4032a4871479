package conditions

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Reads are the parts of an object that expressions read. A list has the parts of its elements.
type Reads struct {
	// Shape is that of the object, as far as it is known.
	Shape ce.Shape
	// Counted means that the object is an element of a list that is only counted unless fields are read.
	Counted bool

	whole  bool
	fields map[string]*Reads
}

// field returns a field of an object, or of the elements of a list.
func (r *Reads) field(name string) *Reads {
	if r.whole {
		return r
	}
	child := r.fields[name]
	if child == nil {
		s := r.Shape
		for s.Kind() == ce.KindList {
			s = s.Element()
		}
		child = &Reads{Shape: s.Field(name)}
		if r.fields == nil {
			r.fields = map[string]*Reads{}
		}
		r.fields[name] = child
	}
	return child
}

// IsWhole reports whether an expression reads the object as a whole.
func (r *Reads) IsWhole() bool { return r.whole }

// Value returns the parts of an object as an expression; empty if no part is read. Fields that are absent
// are absent in it.
func (r *Reads) Value(source string) string {
	if len(r.fields) == 0 {
		return ""
	}
	return r.value(source, 0)
}

func (r *Reads) value(source string, depth int) string {
	if r.whole || len(r.fields) == 0 || r.Shape.Kind() == ce.KindAny && depth > 1 {
		return source // an object of a kind that is not built in has metadata, and other fields as a whole
	}
	variable := "part" + strconv.Itoa(depth)
	if r.Shape.Kind() == ce.KindList {
		element := &Reads{Shape: r.Shape.Element(), fields: r.fields}
		return source + ".map(" + variable + ", " + element.value(variable, depth+1) + ")"
	}
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(r.fields)) {
		read := "[?" + ce.Quote(name).String() + "]"
		if ce.IsIdentifier(name) {
			read = ".?" + name
		}
		part := r.fields[name].value(variable, depth+1)
		entries = append(entries, "?"+ce.Quote(name).String()+": "+source+read+".optMap("+variable+", dyn("+part+"))")
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// WithReads returns a scope that records what expressions read of a variable.
func (s *Scope) WithReads(name string, parts []*Reads) *Scope {
	inner := s.copied()
	inner.reads = maps.Clone(s.reads)
	if inner.reads == nil {
		inner.reads = map[string][]*Reads{}
	}
	inner.reads[name] = parts
	return inner
}

// ReadsOfList returns the reads of a list of objects in its field items.
func ReadsOfList(element *Reads) *Reads {
	return &Reads{fields: map[string]*Reads{"items": element}}
}

// ReadBy returns the parts of an object, or of the variables, that an expression returns, and records what
// it reads besides.
func (s *Scope) ReadBy(source string, of ...*Reads) []*Reads {
	if len(s.reads) == 0 && len(of) == 0 {
		return nil
	}
	node, err := jmespath.NewParser().Parse(withoutValues(source))
	if err != nil {
		return nil // its conversion reports it
	}
	return s.readBy(node, of, len(of) == 0)
}

// openingLiteral begins a literal that is a variable.
const openingLiteral = "`{{"

// withoutLiterals replaces literals that are variables by texts that are variables, which have their types.
func (s *Scope) withoutLiterals(source string) (*Scope, string, error) {
	for {
		start, inner, end := literalVariable(source)
		if start < 0 {
			return s, source, nil
		}
		v, err := s.substitute(inner)
		if err != nil {
			return s, "", err
		}
		if k := v.kind(); k != ce.KindMap && k != ce.KindList {
			return s, "", leftOut("a literal with the variable %s, which is not known to be a map or a list", inner)
		}
		name := "literal" + strconv.Itoa(len(s.Variables))
		s = s.With(name, v)
		source = source[:start] + "'{{" + name + "}}'" + source[end:]
	}
}

// literalVariable returns the first literal that is a variable.
func literalVariable(source string) (start int, inner string, end int) {
	start = strings.Index(source, openingLiteral)
	if start < 0 {
		return -1, "", 0
	}
	length := closingBraces(source[start+1:])
	if end = start + 1 + length + 2; length < 0 || !strings.HasPrefix(source[end:], "`") {
		return -1, "", 0
	}
	return start, strings.TrimSpace(source[start+len(openingLiteral) : start+1+length]), end + 1
}

// withoutValues replaces literals that are variables by a text.
func withoutValues(source string) string {
	source = strings.TrimSpace(source)
	for {
		start, _, end := literalVariable(source)
		if start < 0 {
			return source
		}
		source = source[:start] + "''" + source[end:]
	}
}

// Members returns a value of which only some members are known.
func Members(members map[string]Value) Value { return Value{members: members} }

// IfFound is a value, or a constant if a condition is false.
func (s *Scope) IfFound(found ce.Expression, v Value, otherwise any) (Value, error) {
	d, err := s.Any(otherwise)
	if err != nil {
		return Value{}, err
	}
	if !d.isConstant || v.kind() != d.kind() && v.kind() != ce.KindAny {
		return Value{}, leftOut("the default of a call that is no constant, or of another type")
	}
	constant, err := literalExpression(d.constant)
	if err != nil {
		return Value{}, err
	}
	value, err := v.strict()
	result := computedValue(ce.If(found, value, constant), v.shape)
	result.fails = v.mayFail()
	return result, err
}

func readWhole(parts []*Reads) {
	for _, p := range parts {
		p.whole = true
	}
}

// readBy returns the parts of some objects, or of the variables, that a node returns, and records what it
// reads besides.
func (s *Scope) readBy(n jmespath.ASTNode, of []*Reads, root bool) (out []*Reads) {
	switch n.NodeType {
	case jmespath.ASTField:
		name, _ := n.Value.(string)
		if root {
			return s.reads[name]
		}
		for _, p := range of {
			out = append(out, p.field(name))
		}
		return out
	case jmespath.ASTIdentity, jmespath.ASTCurrentNode, jmespath.ASTIndex:
		return of
	case jmespath.ASTSubexpression, jmespath.ASTIndexExpression, jmespath.ASTPipe:
		return s.readBy(n.Children[1], s.readBy(n.Children[0], of, root), false)
	case jmespath.ASTFlatten:
		return s.readBy(n.Children[0], of, root)
	case jmespath.ASTProjection:
		return s.readBy(n.Children[1], s.readBy(n.Children[0], of, root), false)
	case jmespath.ASTFilterProjection:
		elements := s.readBy(n.Children[0], of, root)
		readWhole(s.readBy(n.Children[2], elements, false))
		return s.readBy(n.Children[1], elements, false)
	case jmespath.ASTMultiSelectList, jmespath.ASTOrExpression, jmespath.ASTAndExpression:
		for _, c := range n.Children {
			out = append(out, s.readBy(c, of, root)...)
		}
		return out
	}
	for _, c := range n.Children {
		read := s.readBy(c, of, root)
		if n.NodeType == jmespath.ASTFunctionExpression && n.Value == "length" {
			read = slices.DeleteFunc(slices.Clone(read), func(p *Reads) bool { return p.Counted })
		}
		readWhole(read)
	}
	return nil
}
