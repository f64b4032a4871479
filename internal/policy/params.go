package policy

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// ParamNeed is what a binding reads as params.
type ParamNeed struct {
	Kind admissionregistrationv1.ParamKind
	Ref  *admissionregistrationv1.ParamRef
	// Reads selects the parts of each object that expressions can read. It includes what
	// identifies the object and its labels.
	Reads unstructuredjson.Selection
}

// ParamReader is a Params that keeps only the parts of objects that policies read.
type ParamReader interface {
	Params
	// ReadParams is Params for objects that have at least the parts of a need.
	ReadParams(ctx context.Context, need ParamNeed, namespace string) ([]runtime.Object, error)
}

// ReadParams returns the params of a need for a request in a namespace.
func ReadParams(ctx context.Context, from Params, need ParamNeed, namespace string) ([]runtime.Object, error) {
	if reader, ok := from.(ParamReader); ok {
		return reader.ReadParams(ctx, need, namespace)
	}
	return from.Params(ctx, &need.Kind, need.Ref, namespace)
}

// ParamNeeds returns what the bindings of the policy read.
func (c *Compiled) ParamNeeds() []ParamNeed {
	if c == nil || c.paramKind == nil { // it does not compile
		return nil
	}
	var out []ParamNeed
	for i := range c.bindings {
		if ref := c.bindings[i].paramRef; ref != nil {
			out = append(out, ParamNeed{Kind: *c.paramKind, Ref: ref, Reads: c.reads.params})
		}
	}
	return out
}

// WholeParams selects what expressions can read of params that they use whole: everything
// but metadata.managedFields, which params do not have.
func WholeParams() unstructuredjson.Selection { return wholeParams }

// Both are values for all policies and requests.
//
//nolint:gochecknoglobals // constants
var (
	wholeParams     = unstructuredjson.Without("metadata", "managedFields")
	paramIdentity   = identityParts.Union(unstructuredjson.Path("metadata", "labels")).Union(paramVersioning)
	paramVersioning = unstructuredjson.Path("metadata", "uid").Union(unstructuredjson.Path("metadata", "resourceVersion"))
)

// paramParts returns what a cache of params keeps for expressions that read some parts.
func paramParts(read unstructuredjson.Selection) unstructuredjson.Selection {
	out := read.Union(paramIdentity)
	if wholeParams.Covers(out) {
		return out
	}
	return wholeParams
}

// param is an object that CEL reads as params, without a conversion. CEL converts objects
// that can write themselves as JSON for each evaluation, unless they have ToUnstructured.
// The result is the same for objects from an API server.
type param struct{ *unstructured.Unstructured }

// ToUnstructured implements UnstructuredConverter of structured-merge-diff, which CEL
// uses. The content belongs to a cache and is never changed.
func (p param) ToUnstructured() any { return p.Object }

// readable keeps nil, which means no params.
func readable(object runtime.Object) runtime.Object {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return param{u}
	}
	return object
}
