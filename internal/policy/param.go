package policy

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// param is an object as CEL reads it as params: just as it is. CEL takes objects
// that can write themselves as JSON by way of that JSON, for every evaluation
// anew, unless they have ToUnstructured. For what came from an API server as
// JSON the two are the same.
type param struct{ *unstructured.Unstructured }

// ToUnstructured implements UnstructuredConverter of structured-merge-diff,
// which CEL goes by. The content belongs to a cache; nobody writes to it.
func (p param) ToUnstructured() any { return p.Object }

// readable leaves nil, which is no params, what it is.
func readable(object runtime.Object) runtime.Object {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return param{u}
	}
	return object
}
