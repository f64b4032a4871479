// Package shapes makes JSON trees of any shape, for fuzz targets.
package shapes

import (
	"fmt"
	"maps"
	"slices"
)

// editLength is how many bytes say what one edit is.
const editLength = 3

// Mangle changes a copy of a JSON tree at some of its nodes: every three bytes
// of edits name a node and what becomes of it. Most of what an object has stays,
// so that code which looks deep into it is reached.
func Mangle(tree any, edits []byte) any {
	root := map[string]any{"root": clone(tree)}
	for ; len(edits) >= editLength; edits = edits[editLength:] {
		nodes := slotsOf(root)
		if len(nodes) == 0 {
			break
		}
		n := nodes[(int(edits[0])<<8|int(edits[1]))%len(nodes)]
		n.become(edits[2], nodes)
	}
	return root["root"]
}

// slot is a place in a tree.
type slot struct {
	object map[string]any
	key    string
	list   []any // instead of an object
	index  int
}

func (s slot) value() any {
	if s.list != nil {
		return s.list[s.index]
	}
	return s.object[s.key]
}

func (s slot) put(v any) {
	if s.list != nil {
		s.list[s.index] = v
		return
	}
	s.object[s.key] = v
}

// become replaces what stands at the slot.
func (s slot) become(what byte, nodes []slot) {
	others := []any{
		nil, true, false, int64(0), int64(-1), int64(1) << 62, 1.5, -1e300, "", "x", "*", "a=b", "1Gi", "-1", "\x00", "2030-01-31T18:00:00Z",
		[]any{}, []any{nil}, []any{nil, "b"}, []any{[]any{nil}}, []any{"a", int64(1)}, []any{map[string]any{}}, []any{map[string]any{"": nil}},
		map[string]any{}, map[string]any{"": nil}, map[string]any{"": []any{nil}}, map[string]any{"a": map[string]any{"b": nil}},
	}
	n := int(what)
	switch {
	case n < len(others):
		s.put(others[n])
	case n == len(others):
		if s.list == nil && s.key != "root" {
			delete(s.object, s.key)
		}
	case n == len(others)+1:
		s.put([]any{s.value(), nil, clone(s.value())})
	case n == len(others)+2:
		s.put(map[string]any{"a": s.value()})
	default: // a copy of another node, which cannot hold itself
		s.put(clone(nodes[n%len(nodes)].value()))
	}
}

// maxNodes bounds a tree: copies of copies grow fast.
const maxNodes = 2000

// slotsOf lists the places in a tree in a stable order.
func slotsOf(root map[string]any) []slot {
	var out []slot
	var walk func(v any)
	walk = func(v any) {
		if len(out) >= maxNodes {
			return
		}
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				out = append(out, slot{object: v, key: key})
				walk(v[key])
			}
		case []any:
			for i := range v {
				out = append(out, slot{list: v, index: i})
				walk(v[i])
			}
		}
	}
	walk(root)
	return out
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = clone(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	case nil, bool, int64, float64, string:
		return v
	default:
		panic(fmt.Sprintf("%T is no value of a JSON tree", v))
	}
}
