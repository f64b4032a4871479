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

// maxText bounds, in bytes, texts of the request that are searched, so that no
// search exceeds what the API server lets an expression cost.
const maxText = "4096"

// total rewrites an expression, of a policy that compiles, so that it has no
// errors: where the expression is true or fails, the result is true; it is false
// only where the expression is false. ok is false for an expression that says
// something this does not know.
//
// An expression can fail where it reads what is not there or is of another type.
// So each comparison that may is put together with the conditions under which
// it cannot, and taken for true, or beneath a negation for false, where they do
// not hold. In CEL "false && error" and "true || error" have no error.
func total(expression string) (text string, ok bool) {
	p, err := parser.NewParser(parser.Macros(parser.HasMacro))
	if err != nil {
		return "", false
	}
	parsed, errs := p.Parse(common.NewTextSource(expression))
	if len(errs.GetErrors()) > 0 {
		return "", false
	}
	b, ok := boolean(parsed.Expr())
	return b.most, ok && len(b.most) <= maxSize
}

// bounds are an expression without errors, twice: true wherever the original is
// true or fails, and false wherever it is false or fails.
type bounds struct{ most, least string }

func boolean(e ast.Expr) (bounds, bool) {
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			a, okA := boolean(call.Args()[0])
			b, okB := boolean(call.Args()[1])
			sign := " && "
			if call.FunctionName() == operators.LogicalOr {
				sign = " || "
			}
			out := bounds{"(" + a.most + sign + b.most + ")", "(" + a.least + sign + b.least + ")"}
			return out, okA && okB && len(out.most)+len(out.least) <= 4*maxSize
		case operators.LogicalNot:
			a, ok := boolean(call.Args()[0])
			return bounds{"!" + a.least, "!" + a.most}, ok
		}
	}
	t, ok := atom(e)
	if !ok || len(t.text) > maxSize {
		return bounds{}, false
	}
	if len(t.safe) == 0 {
		return bounds{"(" + t.text + ")", "(" + t.text + ")"}, true
	}
	safe := strings.Join(t.safe, " && ")
	return bounds{"(!(" + safe + ") || " + t.text + ")", "(" + safe + " && " + t.text + ")"}, true
}

// kind is what is known of a term's type.
type kind int

const (
	ofText kind = iota
	ofInt
	ofBool
	ofNull
	ofTexts   // a list of texts
	ofObject  // object or oldObject itself
	ofAnybody // something within an object
)

// term is a part of an expression. It does not fail where all of safe hold; to
// ask them in their order does not fail either.
type term struct {
	text string
	kind kind
	safe []string
}

func (t term) with(conditions ...string) term {
	t.safe = slices.Concat(t.safe, conditions)
	return t
}

// as is a term of which nothing is known, taken for a type.
func (t term) as(want kind) (term, bool) {
	if t.kind == want {
		return t, true
	}
	name := map[kind]string{ofText: "string", ofInt: "int", ofBool: "bool"}[want]
	if t.kind != ofAnybody || name == "" {
		return t, false
	}
	t.kind = want
	return t.with("type(" + t.text + ") == " + name), true
}

// atom is a term that is true or false.
func atom(e ast.Expr) (term, bool) {
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		return presence(e.AsSelect())
	}
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() == operators.Index {
		t, ok := value(e)
		if !ok {
			return term{}, false
		}
		return t.as(ofBool)
	}
	call := e.AsCall()
	switch name := call.FunctionName(); {
	case call.IsMemberFunction() && name == "allowed" && len(call.Args()) == 0:
		t, ok := question(call.Target())
		t.text += ".allowed()"
		t.kind = ofBool
		return t, ok
	case call.IsMemberFunction():
		return search(call)
	case name == operators.In:
		return membership(call.Args()[0], call.Args()[1])
	default:
		return comparison(call)
	}
}

// presence is has().
func presence(s ast.SelectExpr) (term, bool) {
	t, ok := holder(s.Operand())
	t.text = "has(" + t.text + "." + s.FieldName() + ")"
	t.kind = ofBool
	return t, ok
}

// holder is what has fields: a part of the request, or an object and whatever is
// a map in it.
func holder(e ast.Expr) (term, bool) {
	if path, ok := requestPath(e); ok {
		return requested(path)
	}
	t, ok := value(e)
	switch {
	case !ok:
		return t, false
	case t.kind == ofObject:
		return t.with(t.text + " != null"), true
	case t.kind == ofAnybody:
		return t.with("type(" + t.text + ") == map"), true
	}
	return t, false
}

// value is a literal, a field of the request, or something in an object.
func value(e ast.Expr) (term, bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		return literal(e)
	case ast.IdentKind:
		name := e.AsIdent()
		return term{text: name, kind: ofObject}, name == "object" || name == "oldObject"
	case ast.SelectKind:
		s := e.AsSelect()
		if path, ok := requestPath(e); ok {
			return requested(path)
		}
		t, ok := holder(s.Operand())
		if !ok || s.IsTestOnly() {
			return t, false
		}
		text := t.text + "." + s.FieldName()
		return term{text: text, kind: ofAnybody, safe: t.safe}.with("has(" + text + ")"), true
	case ast.CallKind:
		if call := e.AsCall(); call.FunctionName() == operators.Index {
			t, ok := holder(call.Args()[0])
			key, isKey := literal(call.Args()[1])
			if !ok || !isKey || key.kind != ofText || strings.HasPrefix(t.text, "request") {
				return t, false
			}
			return term{text: t.text + "[" + key.text + "]", kind: ofAnybody, safe: t.safe}.with(key.text + " in " + t.text), true
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
		return term{text: strconv.Quote(string(v)), kind: ofText}, true
	case types.Int:
		return term{text: fmt.Sprint(int64(v)), kind: ofInt}, true
	case types.Bool:
		return term{text: fmt.Sprint(bool(v)), kind: ofBool}, true
	case types.Null:
		return term{text: "null", kind: ofNull}, true
	}
	return term{}, false
}

// requestPath is a.b of request.a.b.
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

// requested is a field of the request. Those that may be absent are asked for.
func requested(path string) (term, bool) {
	t := term{text: strings.TrimSuffix("request."+path, "."), kind: ofText}
	switch path {
	case "", "kind", "resource", "userInfo":
		t.kind = ofObject // has fields, and is always there
	case "operation", "kind.group", "kind.version", "kind.kind", "resource.group", "resource.version", "resource.resource":
	case "name", "namespace", "subResource", "requestSubResource", "userInfo.username":
		t = t.with("has(" + t.text + ")")
	case "requestKind", "requestResource":
		t.kind = ofObject
		t = t.with("has(" + t.text + ")")
	case "requestKind.group", "requestKind.version", "requestKind.kind":
		t = t.with("has(request.requestKind)")
	case "requestResource.group", "requestResource.version", "requestResource.resource":
		t = t.with("has(request.requestResource)")
	case "dryRun":
		t.kind = ofBool
		t = t.with("has(request.dryRun)")
	case "userInfo.groups":
		t.kind = ofTexts
		t = t.with("has(request.userInfo.groups)")
	default:
		return t, false
	}
	return t, true
}

// comparison compares two values of one type.
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
	if a.kind == ofNull || b.kind == ofNull {
		out := term{text: a.text + " " + sign + " " + b.text, kind: ofBool}
		return out, equality && comparesObject(a, b) && !strings.Contains(out.text, "request")
	}
	switch min(a.kind, b.kind) {
	case ofInt:
	case ofText, ofBool:
		if !equality {
			return term{}, false
		}
	default:
		return term{}, false
	}
	a, b, ok := unified(a, b)
	return term{text: a.text + " " + sign + " " + b.text, kind: ofBool}.with(a.safe...).with(b.safe...), ok
}

// comparesObject reports whether one of the two, of which the other is null, is
// an object that may be null.
func comparesObject(a, b term) bool {
	return a.kind == ofObject && a.text != "request" || b.kind == ofObject
}

// unified gives one of the values the type of the other. Two that are unknown
// are not compared.
func unified(a, b term) (term, term, bool) {
	if typed, ok := a.as(b.kind); ok {
		return typed, b, typed.kind != ofAnybody
	}
	typed, ok := b.as(a.kind)
	return a, typed, ok && typed.kind != ofAnybody
}

// membership is "in".
func membership(element, in ast.Expr) (term, bool) {
	e, ok := value(element)
	if ok {
		e, ok = e.as(ofText)
	}
	if !ok {
		return term{}, false
	}
	if in.Kind() == ast.ListKind {
		items := make([]string, 0, in.AsList().Size())
		for _, item := range in.AsList().Elements() {
			t, ok := literal(item)
			if !ok || t.kind != ofText {
				return term{}, false
			}
			items = append(items, t.text)
		}
		slices.Sort(items)
		return term{text: e.text + " in [" + strings.Join(items, ", ") + "]", kind: ofBool, safe: e.safe}, len(items) > 0
	}
	whole, ok := value(in)
	if !ok {
		return term{}, false
	}
	out := term{text: e.text + " in " + whole.text, kind: ofBool, safe: e.safe}.with(whole.safe...)
	switch whole.kind {
	case ofTexts:
		return out, true
	case ofAnybody:
		return out.with("(type(" + whole.text + ") == map || type(" + whole.text + ") == list)"), true
	}
	return out, false
}

// search looks for a text that is given in another.
func search(call ast.CallExpr) (term, bool) {
	known := []string{"startsWith", "endsWith", "contains", "matches"}
	if !slices.Contains(known, call.FunctionName()) || len(call.Args()) != 1 {
		return term{}, false
	}
	what, okWhat := literal(call.Args()[0])
	where, okWhere := value(call.Target())
	if okWhere {
		where, okWhere = where.as(ofText)
	}
	if !okWhat || !okWhere || what.kind != ofText || len(what.text) > 256 {
		return term{}, false
	}
	if call.FunctionName() == "matches" {
		pattern, _ := call.Args()[0].AsLiteral().(types.String)
		if _, err := regexp.Compile(string(pattern)); err != nil {
			return term{}, false
		}
	}
	out := term{text: where.text + "." + call.FunctionName() + "(" + what.text + ")", kind: ofBool, safe: where.safe}
	return out.with("size(" + where.text + ") <= " + maxText), true
}

// question is what the authorizer is asked.
func question(e ast.Expr) (term, bool) {
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
	t, ok := question(call.Target())
	argument, okArgument := value(call.Args()[0])
	if !ok || !okArgument || argument.kind != ofText {
		return term{}, false
	}
	t.text += "." + call.FunctionName() + "(" + argument.text + ")"
	return t.with(argument.safe...), true
}
