package objectpatch

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// changes finds the differences of an object after a mutation. Only these have to be
// checked again.
type changes struct {
	any     bool // there is a difference
	emptied bool // a field has become empty
}

// Equal reports whether two objects are identical or have equal content. Unlike in [Diff],
// a number with a fraction of zero differs from the integer, since its Go type differs.
func Equal(a, b runtime.Object) bool {
	if a == b {
		return true
	}
	ua, okA := a.(*unstructured.Unstructured)
	ub, okB := b.(*unstructured.Unstructured)
	if !okA || !okB {
		return false
	}
	var c changes
	c.object(ua.Object, ub.Object)
	return !c.any
}

// object returns the changed fields of an object, with their parents; nil if nothing was
// added.
func (c *changes) object(before, after map[string]any) map[string]any {
	var changed map[string]any
	kept := 0
	for name, value := range after {
		was, stood := before[name]
		if stood {
			kept++
		}
		part, differs := c.value(was, value, stood)
		if !differs {
			continue
		}
		c.emptied = c.emptied || isOmitted(value) && (!stood || !isOmitted(was))
		if changed == nil {
			changed = map[string]any{}
		}
		changed[name] = part
	}
	c.any = c.any || kept < len(before)
	return changed
}

// list does the same for a list. Elements keep their index, for messages; unchanged
// objects are empty.
func (c *changes) list(before, after []any) []any {
	c.any = c.any || len(before) != len(after)
	var changed []any
	for i, value := range after {
		var was any
		if i < len(before) {
			was = before[i]
		}
		part, differs := c.value(was, value, i < len(before))
		if !differs {
			continue
		}
		if changed == nil {
			changed = withEmptyObjects(after)
		}
		changed[i] = part
	}
	return changed
}

func withEmptyObjects(list []any) []any {
	out := make([]any, len(list))
	for i, value := range list {
		if _, isObject := value.(map[string]any); isObject {
			value = map[string]any{}
		}
		out[i] = value
	}
	return out
}

// value returns the changed part of a value, and whether there is one.
func (c *changes) value(before, after any, stood bool) (changed any, differs bool) {
	if isSame(before, after) {
		return after, false
	}
	switch a := after.(type) {
	case map[string]any:
		b, stillOne := before.(map[string]any)
		part := c.object(b, a)
		return c.within(a, part, part != nil, stillOne, len(a) == 0 && len(b) > 0)
	case []any:
		b, stillOne := before.([]any)
		part := c.list(b, a)
		return c.within(a, part, part != nil, stillOne, len(a) == 0 && len(b) > 0)
	}
	differs = !stood || before != after
	c.any = c.any || differs
	return after, differs
}

// within returns the changed part of a map or a list, and whether there is one.
func (c *changes) within(whole, part any, hasPart, stillOne, emptied bool) (changed any, differs bool) {
	if stillOne && hasPart {
		return part, true
	}
	c.any = c.any || !stillOne
	return whole, !stillOne || emptied
}

// isSame reports whether two values are one map, or one list in memory, not whether they are equal: results share what a
// mutation leaves as it is.
func isSame(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	}
	return false
}
