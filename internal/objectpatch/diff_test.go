package objectpatch

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

func TestDiff(t *testing.T) {
	tests := map[string]struct{ before, after, want string }{
		"equal": {
			before: `{"a":[1,{"b":null}],"c":1.5}`,
			after:  `{"c":1.5,"a":[1,{"b":null}]}`,
			want:   `null`,
		},
		"add": {
			before: `{}`,
			after:  `{"a":{"b":[1]}}`,
			want:   `[{"op":"add","path":"/a","value":{"b":[1]}}]`,
		},
		"add null":           {before: `{}`, after: `{"a":null}`, want: `[{"op":"add","path":"/a","value":null}]`},
		"remove":             {before: `{"a":1,"b":2}`, after: `{"b":2}`, want: `[{"op":"remove","path":"/a"}]`},
		"null is not absent": {before: `{"a":null}`, after: `{}`, want: `[{"op":"remove","path":"/a"}]`},
		"replace by null": {
			before: `{"a":1}`,
			after:  `{"a":null}`,
			want:   `[{"op":"replace","path":"/a","value":null}]`,
		},
		"replace within": {
			before: `{"a":{"b":1,"c":2}}`,
			after:  `{"a":{"b":1,"c":3}}`,
			want:   `[{"op":"replace","path":"/a/c","value":3}]`,
		},
		"another kind": {
			before: `{"a":{"b":1}}`,
			after:  `{"a":[1]}`,
			want:   `[{"op":"replace","path":"/a","value":[1]}]`,
		},
		"escapes":                   {before: `{}`, after: `{"a/b~c":1}`, want: `[{"op":"add","path":"/a~1b~0c","value":1}]`},
		"empty key":                 {before: `{"":1}`, after: `{"":2}`, want: `[{"op":"replace","path":"/","value":2}]`},
		"one number, two spellings": {before: `{"a":1,"b":2.0}`, after: `{"a":1.0,"b":2}`, want: `null`},
		"large integers": {
			before: `{"a":9007199254740993}`,
			after:  `{"a":9007199254740992}`,
			want:   `[{"op":"replace","path":"/a","value":9007199254740992}]`,
		},
		"large integer within": {
			before: `{}`,
			after:  `{"a":{"b":9007199254740993}}`,
			want:   `[{"op":"add","path":"/a","value":{"b":9007199254740993}}]`,
		},
		"largest integer": {
			before: `{"a":9223372036854775807}`,
			after:  `{"a":9223372036854775808}`,
			want:   `[{"op":"replace","path":"/a","value":9223372036854776000}]`,
		},
		"append": {
			before: `{"a":[1,2]}`,
			after:  `{"a":[1,2,3,4]}`,
			want:   `[{"op":"add","path":"/a/2","value":3},{"op":"add","path":"/a/3","value":4}]`,
		},
		"prepend": {
			before: `{"a":[1,2]}`,
			after:  `{"a":[0,1,2]}`,
			want:   `[{"op":"add","path":"/a/0","value":0}]`,
		},
		"insert": {
			before: `{"a":[1,2]}`,
			after:  `{"a":[1,5,6,2]}`,
			want:   `[{"op":"add","path":"/a/1","value":5},{"op":"add","path":"/a/2","value":6}]`,
		},
		"remove from the middle": {
			before: `{"a":[1,2,3,4]}`,
			after:  `{"a":[1,4]}`,
			want:   `[{"op":"remove","path":"/a/1"},{"op":"remove","path":"/a/1"}]`,
		},
		"empty a list": {
			before: `{"a":[1,2]}`,
			after:  `{"a":[]}`,
			want:   `[{"op":"remove","path":"/a/0"},{"op":"remove","path":"/a/0"}]`,
		},
		"change in an element": {
			before: `{"a":[{"n":"x","v":1},{"n":"y"}]}`,
			after:  `{"a":[{"n":"x","v":2},{"n":"y"}]}`,
			want:   `[{"op":"replace","path":"/a/0/v","value":2}]`,
		},
		"insert on both sides": {
			before: `{"a":[1,2,3]}`,
			after:  `{"a":[0,1,2,4,3,5]}`,
			want:   `[{"op":"add","path":"/a/0","value":0},{"op":"add","path":"/a/3","value":4},{"op":"add","path":"/a/5","value":5}]`,
		},
		"remove and insert": {
			before: `{"a":[1,2,3,4,5]}`,
			after:  `{"a":[2,3,9,4]}`,
			want:   `[{"op":"remove","path":"/a/0"},{"op":"add","path":"/a/2","value":9},{"op":"remove","path":"/a/4"}]`,
		},
		"repeated": {before: `{"a":[1,1,1]}`, after: `{"a":[1,1]}`, want: `[{"op":"remove","path":"/a/2"}]`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(Diff(tree(t, tc.before), tree(t, tc.after)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func tree(tb testing.TB, text string) map[string]any {
	tb.Helper()
	out, err := unstructuredjson.Decode([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// TestLongListsAreComparedByPosition: aligning them is bounded.
func TestLongListsAreComparedByPosition(t *testing.T) {
	before, after := make([]any, 2000), make([]any, 2000)
	for i := range before {
		before[i], after[i] = int64(i), int64(i)
	}
	after[0], after[1999] = "first", "last"
	got := Diff(map[string]any{"a": before}, map[string]any{"a": after})
	if len(got) != 2 || got[0].Path != "/a/0" || got[1].Path != "/a/1999" {
		t.Errorf("%d operations, want 2: %+v", len(got), got)
	}
}

// TestDiffOfDeepObjects checks that the patch for a deep object with long names takes no memory for its depth.
func TestDiffOfDeepObjects(t *testing.T) {
	const depth = 9_000
	open, end := `{"`+strings.Repeat("n", 200)+`":`, `}`
	before := tree(t, strings.Repeat(open, depth)+`{"a":1}`+strings.Repeat(end, depth))
	after := tree(t, strings.Repeat(open, depth)+`{"a":2}`+strings.Repeat(end, depth))
	var start, stop runtime.MemStats
	runtime.ReadMemStats(&start)
	operations := Diff(before, after)
	runtime.ReadMemStats(&stop)
	if took := stop.TotalAlloc - start.TotalAlloc; took > 64<<20 {
		t.Errorf("the patch took %d MiB", took>>20)
	}
	if len(operations) != 1 || operations[0].Op != "replace" || len(operations[0].Path) != depth*201+2 {
		t.Errorf("%d operations, want one", len(operations))
	}
}
