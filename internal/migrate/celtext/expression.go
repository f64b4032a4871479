// Package celtext reads, rewrites and builds the text of CEL expressions.
//
// It parses expressions of other projects and rewrites parts of them, so that the rest keeps
// the text of its author. What it builds is meant for people who maintain it: it has no
// needless parentheses, and no parts that constants decide. For that it knows which values
// API servers send in the fields of built-in kinds, so that expressions need no checks of
// their types.
//
// The text is not that of cel-go's unparser, because that one writes other text than an
// author would: it has no raw strings, puts the branches of a conditional into parentheses,
// and removes those of a chain of relations.
package celtext

import (
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// Precedence of a CEL operator: the higher, the tighter it binds.
type Precedence int

// The precedences of CEL, from the language definition.
const (
	Conditional Precedence = iota
	Disjunction
	Conjunction
	Relation
	Addition
	Multiplication
	Unary
	Primary
)

// Expression is the source of an expression. The zero value is no expression.
type Expression struct {
	text       string
	precedence Precedence
	negated    string      // the relation that says the opposite
	operand    *Expression // of a negation
	dynamic    bool        // the type checker does not know that it is a boolean
	parts      []string    // of a conjunction or disjunction
}

// True returns the constant true.
func True() Expression { return Expression{text: "true", precedence: Primary} }

// False returns the constant false.
func False() Expression { return Expression{text: "false", precedence: Primary} }

// String returns the source.
func (e Expression) String() string { return e.text }

// IsTrue reports whether e is the constant true.
func (e Expression) IsTrue() bool { return e.text == "true" }

// IsFalse reports whether e is the constant false.
func (e Expression) IsFalse() bool { return e.text == "false" }

// Dynamic returns an expression that is a boolean although the type checker does not know.
func Dynamic(e Expression) Expression {
	e.dynamic = !e.IsConstant()
	return e
}

// Bool returns an expression of which the type checker knows that it is a boolean.
func (e Expression) Bool() Expression {
	if e.dynamic {
		return Relate(e, "==", True())
	}
	return e
}

// IsConstant reports whether e is true or false.
func (e Expression) IsConstant() bool { return e.IsTrue() || e.IsFalse() }

// IsText reports whether e begins with constant text.
func (e Expression) IsText() bool {
	return strings.HasPrefix(e.text, `"`) || strings.HasPrefix(e.text, `r"`)
}

// In returns the source for a place where operators of a precedence bind: in parentheses
// if those of e bind less tightly.
func (e Expression) In(p Precedence) string {
	if e.precedence < p {
		return "(" + e.text + ")"
	}
	return e.text
}

// Constant returns true or false.
func Constant(b bool) Expression {
	if b {
		return True()
	}
	return False()
}

// Raw returns an expression whose outermost operator has a precedence.
func Raw(text string, p Precedence) Expression { return Expression{text: text, precedence: p} }

// Term returns an expression without an outermost operator: a literal, a name, a call or a
// selection.
func Term(text string) Expression { return Raw(text, Primary) }

// Quote returns a string literal.
func Quote(s string) Expression { return Term(quoteLiteral(s)) }

// quoteLiteral escapes as Go does where CEL has the same escapes. Go has \x for bytes that are no
// UTF-8, which JSON and YAML do not have.
func quoteLiteral(s string) string {
	if strings.Contains(s, `\`) && !strings.HasSuffix(s, `\`) &&
		strconv.Quote(strings.ReplaceAll(s, `\`, "")) == `"`+strings.ReplaceAll(s, `\`, "")+`"` {
		return `r"` + s + `"`
	}
	return strconv.Quote(s)
}

// Relate returns left operator right, for example a == b.
func Relate(left Expression, operator string, right Expression) Expression {
	join := func(op string) string { return left.In(Addition) + " " + op + " " + right.In(Addition) }
	e := Raw(join(operator), Relation)
	if o := oppositeRelation(operator); o != "" {
		e.negated = join(o)
	}
	return e
}

// oppositeRelation returns the relation that is true where another one is false; empty if there is none.
func oppositeRelation(operator string) string {
	return map[string]string{"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}[operator]
}

// And returns the conjunction, without duplicates.
func And(es ...Expression) Expression { return joinOperands(Conjunction, " && ", True(), False(), es) }

// Or returns the disjunction, without duplicates.
func Or(es ...Expression) Expression { return joinOperands(Disjunction, " || ", False(), True(), es) }

func joinOperands(p Precedence, operator string, neutral, absorbing Expression, es []Expression) Expression {
	var parts []string
	seen := map[string]bool{}
	var only Expression
	for _, e := range es {
		if e.text == absorbing.text {
			return absorbing
		}
		inner := e.parts
		if e.precedence != p || len(inner) == 0 {
			inner = []string{e.In(p)}
		}
		for _, part := range inner {
			if e.text != neutral.text && !seen[part] {
				seen[part], only = true, e
				parts = append(parts, part)
			}
		}
	}
	switch len(parts) {
	case 0:
		return neutral
	case 1:
		return only
	}
	return Expression{text: strings.Join(parts, operator), precedence: p, parts: parts}
}

// Not returns the negation.
func Not(e Expression) Expression {
	switch {
	case e.IsConstant():
		return Constant(e.IsFalse())
	case e.negated != "":
		return Expression{text: e.negated, precedence: e.precedence, negated: e.text}
	case e.operand != nil:
		return *e.operand
	}
	return Expression{text: "!" + e.In(Primary), precedence: Unary, operand: &e}
}

// If returns condition ? then : otherwise.
func If(condition, then, otherwise Expression) Expression {
	switch {
	case condition.IsTrue(), then.text == otherwise.text:
		return then
	case condition.IsFalse():
		return otherwise
	case then.IsTrue():
		return Or(condition, otherwise)
	case then.IsFalse():
		return And(Not(condition), otherwise)
	case otherwise.IsFalse():
		return And(condition, then)
	case otherwise.IsTrue():
		return Or(Not(condition), then)
	}
	return Raw(condition.In(Disjunction)+" ? "+then.In(Disjunction)+" : "+otherwise.In(Conditional), Conditional)
}

// Call returns the call of a method.
func Call(target Expression, method string, arguments ...Expression) Expression {
	return Term(target.In(Primary) + "." + method + "(" + joinTexts(arguments) + ")")
}

// Function returns the call of a function.
func Function(name string, arguments ...Expression) Expression {
	return Term(name + "(" + joinTexts(arguments) + ")")
}

// List returns a list literal.
func List(elements ...Expression) Expression { return Term("[" + joinTexts(elements) + "]") }

func joinTexts(es []Expression) string {
	texts := make([]string, len(es))
	for i, e := range es {
		texts[i] = e.text
	}
	return strings.Join(texts, ", ")
}

// Macro returns a comprehension, for example target.all(x, body).
func Macro(target Expression, macro, variable string, body Expression) Expression {
	if macro == "all" && body.IsTrue() || macro == "exists" && body.IsFalse() {
		return body
	}
	return Call(target, macro, Term(variable), body)
}

// IsIdentifier reports whether name can follow a dot.
func IsIdentifier(name string) bool {
	e, err := Parse("x." + name)
	return err == nil && e.root.Kind() == ast.SelectKind && e.root.AsSelect().FieldName() == name &&
		e.root.AsSelect().Operand().Kind() == ast.IdentKind
}

// IsVariable reports whether name can name a variable: CEL reserves some identifiers.
func IsVariable(name string) bool {
	e, err := Parse(name)
	return err == nil && e.root.Kind() == ast.IdentKind && e.root.AsIdent() == name
}

// Singular returns a name for the elements of a list, or the fallback.
func Singular(list, fallback string) string {
	name, plural := strings.CutSuffix(list, "s")
	switch {
	case strings.HasSuffix(list, "ies"):
		name = strings.TrimSuffix(list, "ies") + "y"
	case strings.HasSuffix(list, "sses"), strings.HasSuffix(list, "xes"):
		name = strings.TrimSuffix(list, "es")
	}
	switch {
	case !plural, !IsVariable(name), slices.Contains(
		[]string{"object", "oldObject", "request", "params", "variables", "authorizer", "namespaceObject"},
		name,
	):
		return fallback
	}
	return name
}
