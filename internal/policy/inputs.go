package policy

import (
	"strings"

	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// inputs says which parts of a request a policy can read. The others are not decoded.
type inputs struct {
	object, oldObject  unstructuredjson.Selection // zero: not even whether there is one
	namespace, options bool

	params unstructuredjson.Selection // of each param

	copies, values bool // mutations copy the object; plugins create Go values
}

func (in inputs) with(other inputs) inputs {
	return inputs{
		object:    in.object.Union(other.object),
		oldObject: in.oldObject.Union(other.oldObject),
		namespace: in.namespace || other.namespace,
		options:   in.options || other.options,
		params:    in.params.Union(other.params),
		copies:    in.copies || other.copies,
		values:    in.values || other.values,
	}
}

// identity selects what is read of every object: what contradiction compares with the
// request, and the names in the answer.
func identity() unstructuredjson.Selection { return identityParts }

// identityParts is one value for all policies, which keep parts of it.
var identityParts = unstructuredjson.Path("apiVersion").Union(unstructuredjson.Path("kind")). //nolint:gochecknoglobals // a constant
												Union(unstructuredjson.Path("metadata", "generateName")).Union(unstructuredjson.Path("metadata", "name")).Union(unstructuredjson.Path("metadata", "namespace"))

// readsOf returns the inputs of all expressions and bindings of a policy. It reads the
// syntax trees and not the text, and includes more than an expression reads wherever the
// path of a value is computed.
func readsOf(spec *v1alpha1.WebhookPolicySpec, parsed celsyntax.Trees) inputs {
	in := inputs{object: identity()}
	f := celsyntax.NewFlow()
	for _, v := range spec.Variables {
		f.Add(parsed[v.Expression], v.Name)
	}
	for path, text := range celsyntax.Expressions(spec) {
		if !strings.HasPrefix(path.String(), "spec.variables[") {
			f.Add(parsed[text], "")
		}
	}
	if f.Unknown() {
		everything := unstructuredjson.Everything()
		return inputs{object: everything, oldObject: everything, namespace: true, options: true, params: paramParts(everything)}
	}
	in.object = in.object.Union(f.ReadOfInput(celplugin.ObjectVarName))
	in.oldObject = f.ReadOfInput(celplugin.OldObjectVarName)
	if len(spec.Lookups) > 0 { // lookups do not find the object of the request
		uid := unstructuredjson.Path("metadata", "uid")
		in.object, in.oldObject = in.object.Union(uid), in.oldObject.Union(uid)
	}
	if celsyntax.Ratchets(spec) { // the stored object is evaluated like the object, and selected
		in.oldObject = in.oldObject.Union(in.object)
		if m := spec.MatchConstraints; m != nil && (m.NamespaceSelector != nil || m.ObjectSelector != nil) {
			in.oldObject = in.oldObject.Union(unstructuredjson.Path("metadata", "labels"))
		}
	}
	in.options = !f.ReadOfInput(celplugin.RequestVarName).Member("options").IsZero()
	in.params = paramParts(f.ReadOfInput(celplugin.ParamsVarName))
	in.namespace = f.Reads(celplugin.NamespaceVarName)
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
