package objectpatch

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// pruneEmpty removes what the Go type of an object omits because it is empty: labels of
// which a mutation removed the last, or a boolean that is now false. The API server holds
// such objects as Go values, so the next expression would not find the field there
// either. Fields that were empty before the mutation stay, such as the null for a missing
// time in some releases.
func pruneEmpty(before, after *unstructured.Unstructured, typed runtime.Object) runtime.Object {
	held, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return after
	}
	pruned, changed := pruneEmptyMap(after.Object, held, before.Object)
	if !changed {
		return after
	}
	return &unstructured.Unstructured{Object: pruned}
}

// pruneEmptyMap does not change its arguments: parts of them can belong to other objects.
func pruneEmptyMap(tree, held, old map[string]any) (pruned map[string]any, changed bool) {
	pruned = make(map[string]any, len(tree))
	for name, value := range tree {
		other, kept := held[name]
		was, stood := old[name]
		if !kept && isOmitted(value) && (!stood || !isOmitted(was)) {
			changed = true
			continue
		}
		var differs bool
		pruned[name], differs = pruneEmptyValue(value, other, was)
		changed = changed || differs
	}
	if !changed {
		return tree, false
	}
	return pruned, true
}

func pruneEmptyValue(value, held, old any) (pruned any, changed bool) {
	switch v := value.(type) {
	case map[string]any:
		if other, ok := held.(map[string]any); ok {
			was, _ := old.(map[string]any) // nil if there is none
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

func pruneEmptyList(list, held, old []any) (pruned []any, changed bool) {
	pruned = make([]any, len(list))
	for i := range list {
		var was any
		if i < len(old) {
			was = old[i]
		}
		var differs bool
		pruned[i], differs = pruneEmptyValue(list[i], held[i], was)
		changed = changed || differs
	}
	if !changed {
		return list, false
	}
	return pruned, true
}

// isOmitted reports whether a Go type with omitempty omits a value.
func isOmitted(value any) bool {
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
