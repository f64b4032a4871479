package uncounted

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celcommon "k8s.io/apiserver/pkg/cel/common"
)

// maxMeasured is the number of values and keys that are counted to find the size of params or of a namespace. A
// request can read many params, so without this bound large ones would delay it.
const maxMeasured = 2048

// param is an object as params. The zero value is null.
type param struct {
	object *unstructured.Unstructured
	value  any // nil or a *jsonObject
	size   extent
}

func newParam(object *unstructured.Unstructured) param {
	if object == nil {
		return param{}
	}
	left := maxMeasured
	if !countable(object.Object, &left) {
		return param{object: object, size: unlimited()}
	}
	return param{
		object: object,
		value:  jsonAdapter{types.DefaultTypeAdapter}.object(object.Object),
		size:   extentOf(object.Object),
	}
}

// countable reports whether a JSON value has at most the values and keys that are left, and subtracts them.
func countable(value any, left *int) bool {
	*left--
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			if !countable(v, left) {
				return false
			}
		}
	case map[string]any:
		*left -= len(value)
		for _, v := range value {
			if !countable(v, left) {
				return false
			}
		}
	}
	return *left >= 0
}

// Namespace is the value of namespaceObject. It is not safe for concurrent use.
type Namespace struct {
	value ref.Val
	size  extent
}

// NewNamespace returns the value of a namespace, null for nil.
func NewNamespace(n *corev1.Namespace) *Namespace {
	value := celcommon.SchemalessTypedToVal(celplugin.CreateNamespaceObject(n))
	if n != nil && len(n.Labels)+len(n.Annotations)+len(n.Finalizers)+len(n.Status.Conditions) > maxMeasured {
		return &Namespace{value: value, size: unlimited()}
	}
	return &Namespace{value: value, size: measure(value)}
}
