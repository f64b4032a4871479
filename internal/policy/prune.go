package policy

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// pruneEmpty takes out of an object what its Go value leaves out since it is empty:
// labels of which a mutation removed the last, a boolean set to false. The API
// server holds such objects as Go values, so that the next expression would not
// find the field there either. What was so before the mutation stays, as the
// null that some releases send for a time that is not set.
func pruneEmpty(before, after *unstructured.Unstructured, typed runtime.Object) runtime.Object {
	held, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return after
	}
	settled, changed := pruneEmptyMap(after.Object, held, before.Object)
	if !changed {
		return after
	}
	return &unstructured.Unstructured{Object: settled}
}

// pruneEmptyMap leaves its arguments as they are: parts of them may belong to
// other objects too.
func pruneEmptyMap(tree, held, old map[string]any) (settled map[string]any, changed bool) {
	settled = make(map[string]any, len(tree))
	for name, value := range tree {
		other, kept := held[name]
		was, stood := old[name]
		if !kept && empty(value) && (!stood || !empty(was)) {
			changed = true
			continue
		}
		var differs bool
		settled[name], differs = pruneEmptyValue(value, other, was)
		changed = changed || differs
	}
	if !changed {
		return tree, false
	}
	return settled, true
}

func pruneEmptyValue(value, held, old any) (settled any, changed bool) {
	switch v := value.(type) {
	case map[string]any:
		if other, ok := held.(map[string]any); ok {
			was, _ := old.(map[string]any) // none will do
			return pruneEmptyMap(v, other, was)
		}
	case []any:
		if other, ok := held.([]any); ok && len(other) == len(v) {
			was, _ := old.([]any)
			return pruneEmptyList(v, other, was)
		}
	}
	return value, false
}

func pruneEmptyList(list, held, old []any) (settled []any, changed bool) {
	settled = make([]any, len(list))
	for i := range list {
		var was any
		if i < len(old) {
			was = old[i]
		}
		var differs bool
		settled[i], differs = pruneEmptyValue(list[i], held[i], was)
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
	case string:
		return v == ""
	case bool:
		return !v
	default:
		return reflect.ValueOf(value).IsZero()
	}
}
