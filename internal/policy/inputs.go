package policy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// inputs says which parts of a request a policy can read. The others are not decoded.
type inputs struct {
	object, oldObject  unstructuredjson.Selection // zero: not even whether there is one
	namespace, options bool

	copies, values bool // mutations copy the object; plugins create Go values
}

func (in inputs) with(other inputs) inputs {
	return inputs{
		object:    in.object.Union(other.object),
		oldObject: in.oldObject.Union(other.oldObject),
		namespace: in.namespace || other.namespace,
		options:   in.options || other.options,
		copies:    in.copies || other.copies,
		values:    in.values || other.values,
	}
}

// identity selects what is read of every object: what contradiction compares with the
// request, and the names in the answer.
func identity() unstructuredjson.Selection {
	path := unstructuredjson.Path
	return path("apiVersion").Union(path("kind")).Union(path("metadata", "name")).Union(path("metadata", "namespace")).Union(path("metadata", "generateName"))
}

// readsOf returns the inputs of all expressions and bindings of a policy. It reads the
// syntax trees and not the text, and includes more than an expression reads wherever the
// path of a value is computed.
func readsOf(spec *v1alpha1.WebhookPolicySpec, parsed map[string]*cel.Ast) inputs {
	in := inputs{object: identity()}
	for _, text := range expressions(spec) {
		a := parsed[text]
		if a == nil { // does not compile
			everything := unstructuredjson.Everything()
			return inputs{object: everything, oldObject: everything, namespace: true, options: true}
		}
		in.addExpression(a.NativeRep())
	}
	for _, b := range spec.Bindings {
		if b.MatchResources != nil { // an object selector matches the old object too
			labels := identity().Union(unstructuredjson.Path("metadata", "labels"))
			in.object, in.oldObject = in.object.Union(labels), in.oldObject.Union(labels)
		}
	}
	if !in.oldObject.IsZero() {
		in.oldObject = in.oldObject.Union(identity())
	}
	return in
}

// addExpression adds what an expression reads. A variable of a macro that has the name of
// an input counts as the input.
func (in *inputs) addExpression(a *ast.AST) {
	for _, name := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.IdentKind)) {
		root := strings.TrimPrefix(name.AsIdent(), ".") // the dot names the same input
		if path := pathFrom(name); len(path) > 0 || !comparedWithNull(name) {
			in.add(root, path)
		} else {
			in.add(root, []string{"kind"}) // whether there is an object
		}
	}
}

// add adds the value at a path of an input.
func (in *inputs) add(root string, path []string) {
	switch root {
	case celplugin.ObjectVarName:
		in.object = in.object.Union(unstructuredjson.Path(path...))
	case celplugin.OldObjectVarName:
		in.oldObject = in.oldObject.Union(unstructuredjson.Path(path...))
	case celplugin.RequestVarName:
		in.options = in.options || len(path) == 0 || path[0] == "options"
	case celplugin.NamespaceVarName:
		in.namespace = true
	}
}

// comparedWithNull recognizes `object == null`, `null != oldObject` and similar.
func comparedWithNull(e ast.NavigableExpr) bool {
	parent, ok := e.Parent()
	if !ok || parent.Kind() != ast.CallKind {
		return false
	}
	call := parent.AsCall()
	return (call.FunctionName() == operators.Equals || call.FunctionName() == operators.NotEquals) &&
		slices.ContainsFunc(call.Args(), func(arg ast.Expr) bool { return arg.Kind() == ast.LiteralKind && arg.AsLiteral() == types.NullValue })
}

// plainName matches names of fields that CEL does not escape.
var plainName = regexp.MustCompile(`^[A-Za-z0-9]+(_[A-Za-z0-9]+)*$`)

// pathFrom returns the longest path of constant, unescaped names that an expression
// selects from a name, such as metadata and labels.
func pathFrom(e ast.NavigableExpr) (path []string) {
	for {
		parent, ok := e.Parent()
		if !ok {
			return path
		}
		operand, name, ok := selection(parent)
		if !ok || operand.ID() != e.ID() || !plainName.MatchString(name) {
			return path
		}
		path, e = append(path, name), parent
	}
}

// selection returns the operand and the name of a selection of a field: x.name, x["name"],
// x.?name, x[?"name"] or has(x.name).
func selection(e ast.Expr) (operand ast.Expr, name string, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), true
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if key := call.Args()[1]; key.Kind() == ast.LiteralKind {
				name, ok := key.AsLiteral().(types.String)
				return call.Args()[0], string(name), ok
			}
		}
	}
	return nil, "", false
}
