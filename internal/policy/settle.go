package policy

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// settle takes out of an object what its Go type, where that is known, leaves
// out when it is empty: labels of which a mutation removed the last, a boolean
// set to false. The API server holds such objects as Go values, so that the
// next expression would not find the field there either.
func settle(object runtime.Object, objects admission.ObjectInterfaces) runtime.Object {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object
	}
	typed, err := objects.GetObjectCreater().New(u.GroupVersionKind())
	if err != nil {
		return object // a kind without a Go type is held as it is
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return object
	}
	held, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return object
	}
	settled, changed := settleMap(u.Object, held)
	if !changed {
		return object
	}
	return &unstructured.Unstructured{Object: settled}
}

// settleMap leaves its arguments as they are: parts of them may belong to
// other objects too.
func settleMap(tree, held map[string]any) (settled map[string]any, changed bool) {
	settled = make(map[string]any, len(tree))
	for name, value := range tree {
		other, kept := held[name]
		if !kept && empty(value) {
			changed = true
			continue
		}
		var differs bool
		settled[name], differs = settleValue(value, other)
		changed = changed || differs
	}
	if !changed {
		return tree, false
	}
	return settled, true
}

func settleValue(value, held any) (settled any, changed bool) {
	switch v := value.(type) {
	case map[string]any:
		if other, ok := held.(map[string]any); ok {
			return settleMap(v, other)
		}
	case []any:
		if other, ok := held.([]any); ok && len(other) == len(v) {
			return settleList(v, other)
		}
	}
	return value, false
}

func settleList(list, held []any) (settled []any, changed bool) {
	settled = make([]any, len(list))
	for i := range list {
		var differs bool
		settled[i], differs = settleValue(list[i], held[i])
		changed = changed || differs
	}
	if !changed {
		return list, false
	}
	return settled, true
}

// empty is what Go types leave out where they are told to.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return reflect.ValueOf(value).IsZero()
	}
}
