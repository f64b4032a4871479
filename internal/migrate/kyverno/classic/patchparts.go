package classic

import (
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// patchPath is a JSON pointer of a patch, with variables. The zero value is the object.
type patchPath struct {
	closed []string // parts of the pointer before open, as CEL
	open   string   // constant
	depth  int      // of lists
}

// field returns the path of a member.
func (p patchPath) field(name string) patchPath {
	p.open += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	return p
}

// element returns the path of the element of a list at the index in a variable.
func (p patchPath) element(index string) patchPath {
	p.depth++
	return p.append(ce.Function("string", ce.Term(index)))
}

// index returns the name of a variable with the index of an element of the list at the path.
func (p patchPath) index() string {
	const names = "ijklmn" // no list of a built-in kind is deeper
	at := min(p.depth, len(names)-1)
	return names[at : at+1]
}

// variable returns the path of a member whose name is an expression.
func (p patchPath) variable(name ce.Expression) patchPath {
	return p.append(ce.Function("jsonpatch.escapeKey", name))
}

func (p patchPath) append(e ce.Expression) patchPath {
	p.closed = append(p.closed[:len(p.closed):len(p.closed)], ce.Quote(p.open+"/").String(), e.String())
	p.open = ""
	return p
}

func (p patchPath) String() string {
	parts := p.closed
	if p.open != "" || len(parts) == 0 {
		parts = append(parts[:len(parts):len(parts)], ce.Quote(p.open).String())
	}
	return strings.Join(parts, " + ")
}

// operation returns an operation of a JSON patch.
func (p patchPath) operation(op string, value ce.Expression) string {
	text := "JSONPatch{op: " + ce.Quote(op).String() + ", path: " + p.String()
	if op != "remove" {
		text += ", value: " + value.String()
	}
	return text + "}"
}

// patchPart is an operation of a JSON patch with its condition, or an expression with a list
// of operations.
type patchPart struct {
	condition ce.Expression
	operation string
	raw       ce.Expression
}

// addition returns an operation that adds or replaces a value.
func addition(path patchPath, value ce.Expression) patchPart {
	return patchPart{condition: ce.True(), operation: path.operation("add", value)}
}

// onlyIf returns the part with a condition, in a list.
func (p patchPart) onlyIf(condition ce.Expression) patchParts { return patchParts{p}.onlyIf(condition) }

// patchParts are the parts of a JSON patch in their order.
type patchParts []patchPart

// onlyIf returns the parts with a condition.
func (p patchParts) onlyIf(condition ce.Expression) patchParts {
	if condition.IsTrue() || len(p) == 0 {
		return p
	}
	if len(p) == 1 && p[0].operation != "" {
		return patchParts{{condition: ce.And(condition, p[0].condition), operation: p[0].operation}}
	}
	return patchParts{{raw: ce.Term("(" + ce.If(condition, p.list(), ce.Term("[]")).String() + ")")}}
}

// list returns all operations.
func (p patchParts) list() ce.Expression {
	texts := make([]string, len(p))
	for i, part := range p {
		switch {
		case part.operation == "":
			texts[i] = part.raw.In(ce.Addition)
		case part.condition.IsTrue():
			texts[i] = "[" + part.operation + "]"
		default:
			operation := ce.Term("[" + part.operation + "]")
			texts[i] = "(" + ce.If(part.condition, operation, ce.Term("[]")).String() + ")"
		}
	}
	return ce.Raw(strings.Join(texts, " + "), ce.Addition)
}
