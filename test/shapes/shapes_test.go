package shapes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMangle(t *testing.T) {
	tree := func() any {
		return map[string]any{"a": []any{"x", int64(1)}, "b": map[string]any{"c": true}}
	}
	// Nodes: 0 the tree, 1 a, 2 a[0], 3 a[1], 4 b, 5 b.c.
	tests := map[string]struct {
		edits []byte
		want  any
	}{
		"nothing":        {nil, tree()},
		"too short":      {[]byte{0, 1}, tree()},
		"all":            {[]byte{0, 0, 0}, nil},
		"null in a list": {[]byte{0, 2, 0}, map[string]any{"a": []any{nil, int64(1)}, "b": map[string]any{"c": true}}},
		"removed":        {[]byte{0, 4, 27}, map[string]any{"a": []any{"x", int64(1)}}},
		"wrapped":        {[]byte{0, 5, 28}, map[string]any{"a": []any{"x", int64(1)}, "b": map[string]any{"c": []any{true, nil, true}}}},
		"copied":         {[]byte{0, 2, 58}, map[string]any{"a": []any{map[string]any{"c": true}, int64(1)}, "b": map[string]any{"c": true}}},
		"twice":          {[]byte{0, 1, 0, 0, 2, 3}, map[string]any{"a": nil, "b": int64(0)}},
		"by the number":  {[]byte{0, 6 + 1, 0}, map[string]any{"a": nil, "b": map[string]any{"c": true}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := tree()
			if diff := cmp.Diff(tt.want, Mangle(before, tt.edits)); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tree(), before); diff != "" {
				t.Errorf("the tree that was given has changed (-want +got):\n%s", diff)
			}
		})
	}
}
