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
		"equal":                     {`{"a":[1,{"b":null}],"c":1.5}`, `{"c":1.5,"a":[1,{"b":null}]}`, `null`},
		"add":                       {`{}`, `{"a":{"b":[1]}}`, `[{"op":"add","path":"/a","value":{"b":[1]}}]`},
		"add null":                  {`{}`, `{"a":null}`, `[{"op":"add","path":"/a","value":null}]`},
		"remove":                    {`{"a":1,"b":2}`, `{"b":2}`, `[{"op":"remove","path":"/a"}]`},
		"null is not absent":        {`{"a":null}`, `{}`, `[{"op":"remove","path":"/a"}]`},
		"replace by null":           {`{"a":1}`, `{"a":null}`, `[{"op":"replace","path":"/a","value":null}]`},
		"replace within":            {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, `[{"op":"replace","path":"/a/c","value":3}]`},
		"another kind":              {`{"a":{"b":1}}`, `{"a":[1]}`, `[{"op":"replace","path":"/a","value":[1]}]`},
		"escapes":                   {`{}`, `{"a/b~c":1}`, `[{"op":"add","path":"/a~1b~0c","value":1}]`},
		"empty key":                 {`{"":1}`, `{"":2}`, `[{"op":"replace","path":"/","value":2}]`},
		"one number, two spellings": {`{"a":1,"b":2.0}`, `{"a":1.0,"b":2}`, `null`},
		"large integers":            {`{"a":9007199254740993}`, `{"a":9007199254740992}`, `[{"op":"replace","path":"/a","value":9007199254740992}]`},
		"large integer within":      {`{}`, `{"a":{"b":9007199254740993}}`, `[{"op":"add","path":"/a","value":{"b":9007199254740993}}]`},
		"largest integer":           {`{"a":9223372036854775807}`, `{"a":9223372036854775808}`, `[{"op":"replace","path":"/a","value":9223372036854776000}]`},
		"append":                    {`{"a":[1,2]}`, `{"a":[1,2,3,4]}`, `[{"op":"add","path":"/a/2","value":3},{"op":"add","path":"/a/3","value":4}]`},
		"prepend":                   {`{"a":[1,2]}`, `{"a":[0,1,2]}`, `[{"op":"add","path":"/a/0","value":0}]`},
		"insert":                    {`{"a":[1,2]}`, `{"a":[1,5,6,2]}`, `[{"op":"add","path":"/a/1","value":5},{"op":"add","path":"/a/2","value":6}]`},
		"remove from the middle":    {`{"a":[1,2,3,4]}`, `{"a":[1,4]}`, `[{"op":"remove","path":"/a/1"},{"op":"remove","path":"/a/1"}]`},
		"empty a list":              {`{"a":[1,2]}`, `{"a":[]}`, `[{"op":"remove","path":"/a/0"},{"op":"remove","path":"/a/0"}]`},
		"change in an element":      {`{"a":[{"n":"x","v":1},{"n":"y"}]}`, `{"a":[{"n":"x","v":2},{"n":"y"}]}`, `[{"op":"replace","path":"/a/0/v","value":2}]`},
		"insert on both sides":      {`{"a":[1,2,3]}`, `{"a":[0,1,2,4,3,5]}`, `[{"op":"add","path":"/a/0","value":0},{"op":"add","path":"/a/3","value":4},{"op":"add","path":"/a/5","value":5}]`},
		"remove and insert":         {`{"a":[1,2,3,4,5]}`, `{"a":[2,3,9,4]}`, `[{"op":"remove","path":"/a/0"},{"op":"add","path":"/a/2","value":9},{"op":"remove","path":"/a/4"}]`},
		"repeated":                  {`{"a":[1,1,1]}`, `{"a":[1,1]}`, `[{"op":"remove","path":"/a/2"}]`},
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
