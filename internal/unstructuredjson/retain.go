package unstructuredjson

import "strings"

// allocationCost is what the allocation of a string needs beside its bytes.
const allocationCost = 16

// Retain returns a copy of a tree for a cache, and its estimated size in bytes. Other than
// the tree, the copy does not keep the JSON alive from which the tree was decoded.
// TestRetain compares the size with the heap.
func Retain(tree map[string]any) (_ map[string]any, size int64) {
	kept := retainObject(tree, &size)
	return kept, size
}

func retainObject(tree map[string]any, size *int64) map[string]any {
	*size += objectCost
	out := make(map[string]any, len(tree))
	for name, value := range tree {
		*size += costOfMember(len(out)) + allocationCost + int64(len(name))
		out[strings.Clone(name)] = retainValue(value, size)
	}
	return out
}

func retainValue(value any, size *int64) any {
	switch v := value.(type) {
	case map[string]any:
		return retainObject(v, size)
	case []any:
		*size += arrayCost
		out := make([]any, len(v))
		for i := range v {
			*size += elementCost
			out[i] = retainValue(v[i], size)
		}
		return out
	case string:
		*size += stringCost + allocationCost + int64(len(v))
		return strings.Clone(v)
	}
	*size += numberCost
	return value
}
