package policy

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/objectpatch"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

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
		operations := objectpatch.Diff(tree(t, string(from)), tree(t, string(want)))
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

func tree(tb testing.TB, text string) map[string]any {
	tb.Helper()
	out, err := unstructuredjson.Decode([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return out
}
