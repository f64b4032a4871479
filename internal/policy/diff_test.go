package policy

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

func TestDifference(t *testing.T) {
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
			got, err := json.Marshal(difference(tree(t, tc.before), tree(t, tc.after)))
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

// TestDifferenceMakesOneOfTheOther applies the patches between random objects,
// each with many equal parts, as the API server applies them.
func TestDifferenceMakesOneOfTheOther(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 0))
	for range 3000 {
		before := randomObject(random, 3)
		after := alter(random, before).(map[string]any)
		from, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(after)
		if err != nil {
			t.Fatal(err)
		}
		operations := difference(tree(t, string(from)), tree(t, string(want)))
		patch, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		resp := &admissionv1.AdmissionResponse{}
		if len(operations) > 0 {
			kind := admissionv1.PatchTypeJSONPatch
			resp.Patch, resp.PatchType = patch, &kind
		}
		got := applyMinimal(t, from, resp)
		if diff := cmp.Diff(tree(t, string(want)), tree(t, string(got))); diff != "" {
			t.Fatalf("seed %d: %s with %s (-want +got):\n%s", *seed, from, patch, diff)
		}
		if _, err := jsonpatch.DecodePatch(patch); err != nil {
			t.Fatal(err)
		}
	}
}

func randomValue(random *rand.Rand, depth int) any {
	switch n := random.IntN(8); {
	case n < 2 && depth > 0:
		return randomObject(random, depth-1)
	case n < 5 && depth > 0:
		list := make([]any, random.IntN(6))
		for i := range list {
			list[i] = randomValue(random, depth-1)
		}
		return list
	case n == 5:
		return nil
	case n == 6:
		return []any{9007199254740990 + random.Int64N(4), 1.5, true}[random.IntN(3)]
	default:
		return []any{"a", "b", int64(1), int64(2)}[random.IntN(4)]
	}
}

func randomObject(random *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range random.IntN(4) {
		out[[]string{"a", "b", "c/d", "~", ""}[random.IntN(5)]] = randomValue(random, depth)
	}
	return out
}

// alter is a value with a few changes.
func alter(random *rand.Rand, value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, x := range v {
			if random.IntN(6) > 0 {
				out[key] = alter(random, x)
			}
		}
		if random.IntN(4) == 0 {
			out["new"] = randomValue(random, 2)
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			if random.IntN(6) == 0 {
				out = append(out, randomValue(random, 1))
			}
			if random.IntN(6) > 0 {
				out = append(out, alter(random, x))
			}
		}
		return out
	default:
		if random.IntN(6) == 0 {
			return randomValue(random, 1)
		}
		return value
	}
}

// TestLongListsAreComparedByPosition: aligning them is bounded.
func TestLongListsAreComparedByPosition(t *testing.T) {
	before, after := make([]any, 2000), make([]any, 2000)
	for i := range before {
		before[i], after[i] = int64(i), int64(i)
	}
	after[0], after[1999] = "first", "last"
	got := difference(map[string]any{"a": before}, map[string]any{"a": after})
	if len(got) != 2 || got[0].Path != "/a/0" || got[1].Path != "/a/1999" {
		t.Errorf("%d operations, want 2: %+v", len(got), got)
	}
}
