package policy

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

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
