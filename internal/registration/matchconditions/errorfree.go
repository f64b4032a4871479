package matchconditions

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// maxSearchedBytes limits the strings in which a condition searches, so that no
// search exceeds the cost limit of the API server. Longer strings are not searched:
// the condition is then true.
const maxSearchedBytes = "4096"

// errorFree rewrites an expression that compiles so that it has no errors. The
// result is false only if the expression is false, and true if the expression is
// true or fails. ok is false for an expression with anything unsupported.
//
// A comparison fails if it reads an absent field or a value of another type. Each
// such comparison is combined with preconditions under which it cannot fail. If
// one of them does not hold, the comparison counts as true, or as false below a
// negation. In CEL "false && error" and "true || error" have no error.
func errorFree(expression string) (text string, ok bool) {
	p, err := parser.NewParser(parser.Macros(parser.HasMacro))
	if err != nil {
		return "", false
	}
	parsed, errs := p.Parse(common.NewTextSource(expression))
	if len(errs.GetErrors()) > 0 {
		return "", false
	}
	b, ok := approximate(parsed.Expr())
	return b.upper, ok && len(b.upper) <= maxSize
}

// approximations are two expressions without errors. upper is true if the original
// is true or fails, lower is false if the original is false or fails.
type approximations struct{ upper, lower string }

func approximate(e ast.Expr) (approximations, bool) {
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			a, okA := approximate(call.Args()[0])
			b, okB := approximate(call.Args()[1])
			sign := " && "
			if call.FunctionName() == operators.LogicalOr {
				sign = " || "
			}
			out := approximations{"(" + a.upper + sign + b.upper + ")", "(" + a.lower + sign + b.lower + ")"}
			return out, okA && okB && len(out.upper)+len(out.lower) <= 4*maxSize
		case operators.LogicalNot:
			a, ok := approximate(call.Args()[0])
			return approximations{"!" + a.lower, "!" + a.upper}, ok
		}
	}
	t, ok := booleanTerm(e)
	if !ok || len(t.text) > maxSize {
		return approximations{}, false
	}
	if len(t.preconditions) == 0 {
		return approximations{"(" + t.text + ")", "(" + t.text + ")"}, true
	}
	safe := strings.Join(t.preconditions, " && ")
	return approximations{"(!(" + safe + ") || " + t.text + ")", "(" + safe + " && " + t.text + ")"}, true
}

// termType is the type of a term, as far as it is known.
type termType int

const (
	typeString termType = iota
	typeInt
	typeBool
	typeNull
	typeStrings // a list of strings
	typeObject  // object or oldObject itself
	typeDyn     // a value in an object, of any type
)

// term is a part of an expression. It does not fail if all preconditions hold.
// They do not fail either, if they are evaluated in order.
type term struct {
	text          string
	typ           termType
	preconditions []string
}

func (t term) with(conditions ...string) term {
	t.preconditions = slices.Concat(t.preconditions, conditions)
	return t
}

// as returns the term with a type. If the type is unknown, it adds a precondition.
func (t term) as(want termType) (term, bool) {
	if t.typ == want {
		return t, true
	}
	name := map[termType]string{typeString: "string", typeInt: "int", typeBool: "bool"}[want]
	if t.typ != typeDyn || name == "" {
		return t, false
	}
	t.typ = want
	return t.with("type(" + t.text + ") == " + name), true
}

// booleanTerm returns the term of a boolean expression.
func booleanTerm(e ast.Expr) (term, bool) {
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		return presence(e.AsSelect())
	}
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() == operators.Index {
		t, ok := value(e)
		if !ok {
			return term{}, false
		}
		return t.as(typeBool)
	}
	call := e.AsCall()
	switch name := call.FunctionName(); {
	case call.IsMemberFunction() && name == "allowed" && len(call.Args()) == 0:
		t, ok := authorizerCheck(call.Target())
		t.text += ".allowed()"
		t.typ = typeBool
		return t, ok
	case call.IsMemberFunction():
		return search(call)
	case name == operators.In:
		return membership(call.Args()[0], call.Args()[1])
	default:
		return comparison(call)
	}
}

// presence returns the term of has().
func presence(s ast.SelectExpr) (term, bool) {
	t, ok := container(s.Operand())
	t.text = "has(" + t.text + "." + s.FieldName() + ")"
	t.typ = typeBool
	return t, ok
}

// container returns the term of a value with fields: a part of the request, an
// object, or a map in an object.
func container(e ast.Expr) (term, bool) {
	if path, ok := requestPath(e); ok {
		return requestField(path)
	}
	t, ok := value(e)
	switch {
	case !ok:
		return t, false
	case t.typ == typeObject:
		return t.with(t.text + " != null"), true
	case t.typ == typeDyn:
		return t.with("type(" + t.text + ") == map"), true
	}
	return t, false
}

// value returns the term of a literal, a field of the request, or a value in an object.
func value(e ast.Expr) (term, bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		return literal(e)
	case ast.IdentKind:
		name := e.AsIdent()
		return term{text: name, typ: typeObject}, name == "object" || name == "oldObject"
	case ast.SelectKind:
		s := e.AsSelect()
		if path, ok := requestPath(e); ok {
			return requestField(path)
		}
		t, ok := container(s.Operand())
		if !ok || s.IsTestOnly() {
			return t, false
		}
		text := t.text + "." + s.FieldName()
		return term{text: text, typ: typeDyn, preconditions: t.preconditions}.with("has(" + text + ")"), true
	case ast.CallKind:
		if call := e.AsCall(); call.FunctionName() == operators.Index {
			t, ok := container(call.Args()[0])
			key, isKey := literal(call.Args()[1])
			if !ok || !isKey || key.typ != typeString || strings.HasPrefix(t.text, "request") {
				return t, false
			}
			return term{text: t.text + "[" + key.text + "]", typ: typeDyn, preconditions: t.preconditions}.with(key.text + " in " + t.text), true
		}
	}
	return term{}, false
}

func literal(e ast.Expr) (term, bool) {
	if e.Kind() != ast.LiteralKind {
		return term{}, false
	}
	switch v := e.AsLiteral().(type) {
	case types.String:
		return term{text: strconv.Quote(string(v)), typ: typeString}, true
	case types.Int:
		return term{text: fmt.Sprint(int64(v)), typ: typeInt}, true
	case types.Bool:
		return term{text: fmt.Sprint(bool(v)), typ: typeBool}, true
	case types.Null:
		return term{text: "null", typ: typeNull}, true
	}
	return term{}, false
}

// requestPath returns a.b for request.a.b.
func requestPath(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return "", e.AsIdent() == "request"
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			path, ok := requestPath(s.Operand())
			return strings.TrimPrefix(path+"."+s.FieldName(), "."), ok
		}
	}
	return "", false
}

// requestField returns the term of a field of the request. A field that can be
// absent has a precondition.
func requestField(path string) (term, bool) {
	t := term{text: strings.TrimSuffix("request."+path, "."), typ: typeString}
	switch path {
	case "", "kind", "resource", "userInfo":
		t.typ = typeObject // never absent
	case "operation", "kind.group", "kind.version", "kind.kind", "resource.group", "resource.version", "resource.resource":
	case "name", "namespace", "subResource", "requestSubResource", "userInfo.username":
		t = t.with("has(" + t.text + ")")
	case "requestKind", "requestResource":
		t.typ = typeObject
		t = t.with("has(" + t.text + ")")
	case "requestKind.group", "requestKind.version", "requestKind.kind":
		t = t.with("has(request.requestKind)")
	case "requestResource.group", "requestResource.version", "requestResource.resource":
		t = t.with("has(request.requestResource)")
	case "dryRun":
		t.typ = typeBool
		t = t.with("has(request.dryRun)")
	case "userInfo.groups":
		t.typ = typeStrings
		t = t.with("has(request.userInfo.groups)")
	default:
		return t, false
	}
	return t, true
}

// comparison returns the term of a comparison of two values of one type.
func comparison(call ast.CallExpr) (term, bool) {
	signs := map[string]string{
		operators.Equals: "==", operators.NotEquals: "!=", operators.Less: "<", operators.LessEquals: "<=",
		operators.Greater: ">", operators.GreaterEquals: ">=",
	}
	sign := signs[call.FunctionName()]
	if sign == "" || len(call.Args()) != 2 {
		return term{}, false
	}
	a, okA := value(call.Args()[0])
	b, okB := value(call.Args()[1])
	if !okA || !okB {
		return term{}, false
	}
	equality := sign == "==" || sign == "!="
	if a.typ == typeNull || b.typ == typeNull {
		out := term{text: a.text + " " + sign + " " + b.text, typ: typeBool}
		return out, equality && comparesObject(a, b) && !strings.Contains(out.text, "request")
	}
	switch min(a.typ, b.typ) {
	case typeInt:
	case typeString, typeBool:
		if !equality {
			return term{}, false
		}
	default:
		return term{}, false
	}
	a, b, ok := unifyTypes(a, b)
	return term{text: a.text + " " + sign + " " + b.text, typ: typeBool}.with(a.preconditions...).with(b.preconditions...), ok
}

// comparesObject reports whether the term that is compared with null is object or
// oldObject.
func comparesObject(a, b term) bool {
	return a.typ == typeObject && a.text != "request" || b.typ == typeObject
}

// unifyTypes gives one of the terms the type of the other. It fails if both
// types are unknown.
func unifyTypes(a, b term) (term, term, bool) {
	if typed, ok := a.as(b.typ); ok {
		return typed, b, typed.typ != typeDyn
	}
	typed, ok := b.as(a.typ)
	return a, typed, ok && typed.typ != typeDyn
}

// membership returns the term of "in".
func membership(element, in ast.Expr) (term, bool) {
	e, ok := value(element)
	if ok {
		e, ok = e.as(typeString)
	}
	if !ok {
		return term{}, false
	}
	if in.Kind() == ast.ListKind {
		items := make([]string, 0, in.AsList().Size())
		for _, item := range in.AsList().Elements() {
			t, ok := literal(item)
			if !ok || t.typ != typeString {
				return term{}, false
			}
			items = append(items, t.text)
		}
		slices.Sort(items)
		return term{text: e.text + " in [" + strings.Join(items, ", ") + "]", typ: typeBool, preconditions: e.preconditions}, len(items) > 0
	}
	whole, ok := value(in)
	if !ok {
		return term{}, false
	}
	out := term{text: e.text + " in " + whole.text, typ: typeBool, preconditions: e.preconditions}.with(whole.preconditions...)
	switch whole.typ {
	case typeStrings:
		return out, true
	case typeDyn:
		return out.with("(type(" + whole.text + ") == map || type(" + whole.text + ") == list)"), true
	}
	return out, false
}

// search returns the term of a string function with a literal argument.
func search(call ast.CallExpr) (term, bool) {
	known := []string{"startsWith", "endsWith", "contains", "matches"}
	if !slices.Contains(known, call.FunctionName()) || len(call.Args()) != 1 {
		return term{}, false
	}
	what, okWhat := literal(call.Args()[0])
	where, okWhere := value(call.Target())
	if okWhere {
		where, okWhere = where.as(typeString)
	}
	if !okWhat || !okWhere || what.typ != typeString || len(what.text) > 256 {
		return term{}, false
	}
	if call.FunctionName() == "matches" {
		pattern, _ := call.Args()[0].AsLiteral().(types.String)
		if _, err := regexp.Compile(string(pattern)); err != nil {
			return term{}, false
		}
	}
	out := term{text: where.text + "." + call.FunctionName() + "(" + what.text + ")", typ: typeBool, preconditions: where.preconditions}
	return out.with("size(" + where.text + ") <= " + maxSearchedBytes), true
}

// authorizerCheck returns the term of the receiver of allowed().
func authorizerCheck(e ast.Expr) (term, bool) {
	if e.Kind() == ast.IdentKind {
		return term{text: "authorizer"}, e.AsIdent() == "authorizer"
	}
	if e.Kind() != ast.CallKind || !e.AsCall().IsMemberFunction() || len(e.AsCall().Args()) != 1 {
		return term{}, false
	}
	call := e.AsCall()
	if !slices.Contains([]string{"group", "resource", "subresource", "namespace", "name", "check"}, call.FunctionName()) {
		return term{}, false
	}
	t, ok := authorizerCheck(call.Target())
	argument, okArgument := value(call.Args()[0])
	if !ok || !okArgument || argument.typ != typeString {
		return term{}, false
	}
	t.text += "." + call.FunctionName() + "(" + argument.text + ")"
	return t.with(argument.preconditions...), true
}
