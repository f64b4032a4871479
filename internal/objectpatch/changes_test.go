package objectpatch

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
	"github.com/ostiary/ostiary/test/bench"
)

func TestChanges(t *testing.T) {
	type tree = map[string]any
	list := func(elements ...any) []any { return elements }
	tests := map[string]struct {
		before, after tree
		want          tree
		wantAny       bool
		wantEmptied   bool
	}{
		"nothing": {
			before: tree{"a": tree{"b": list(int64(1), tree{"c": "d"})}},
			after:  tree{"a": tree{"b": list(int64(1), tree{"c": "d"})}},
		},
		"a scalar": {
			before:  tree{"a": "b", "c": tree{"d": "e", "f": "g"}},
			after:   tree{"a": "b", "c": tree{"d": "x", "f": "g"}},
			want:    tree{"c": tree{"d": "x"}},
			wantAny: true,
		},
		"an integer, a fraction": {before: tree{"a": int64(1)}, after: tree{"a": 1.0}, want: tree{"a": 1.0}, wantAny: true},
		"a field is gone":        {before: tree{"a": "b", "c": "d"}, after: tree{"a": "b"}, wantAny: true},
		"the last field is gone": {
			before:      tree{"a": tree{"b": "c"}},
			after:       tree{"a": tree{}},
			want:        tree{"a": tree{}},
			wantAny:     true,
			wantEmptied: true,
		},
		"a new object": {
			before:  tree{},
			after:   tree{"a": tree{"b": list("c")}},
			want:    tree{"a": tree{"b": list("c")}},
			wantAny: true,
		},
		"a new object, empty": {
			before:      tree{},
			after:       tree{"a": tree{}},
			want:        tree{"a": tree{}},
			wantAny:     true,
			wantEmptied: true,
		},
		"empty within a new one": {
			before:      tree{},
			after:       tree{"a": list(tree{"b": tree{"c": false}})},
			want:        tree{"a": list(tree{"b": tree{"c": false}})},
			wantAny:     true,
			wantEmptied: true,
		},
		"empty as before": {
			before:  tree{"a": tree{}, "b": "c"},
			after:   tree{"a": tree{}, "b": "d"},
			want:    tree{"b": "d"},
			wantAny: true,
		},
		"empty in another way": {before: tree{"a": ""}, after: tree{"a": false}, want: tree{"a": false}, wantAny: true},
		"null for nothing": {
			before:      tree{},
			after:       tree{"a": nil},
			want:        tree{"a": nil},
			wantAny:     true,
			wantEmptied: true,
		},
		"a list for an object": {
			before:  tree{"a": tree{"b": "c"}},
			after:   tree{"a": list("b")},
			want:    tree{"a": list("b")},
			wantAny: true,
		},
		"an object for a scalar": {
			before:  tree{"a": "b"},
			after:   tree{"a": tree{"b": "c"}},
			want:    tree{"a": tree{"b": "c"}},
			wantAny: true,
		},
		"an element": {
			before:  tree{"a": list(tree{"b": "c"}, tree{"d": "e"}, "f", list("g"))},
			after:   tree{"a": list(tree{"b": "c"}, tree{"d": "x"}, "f", list("g"))},
			want:    tree{"a": list(tree{}, tree{"d": "x"}, "f", list("g"))},
			wantAny: true,
		},
		"one more element": {
			before:  tree{"a": list(tree{"b": "c"})},
			after:   tree{"a": list(tree{"b": "c"}, tree{"b": "d"})},
			want:    tree{"a": list(tree{}, tree{"b": "d"})},
			wantAny: true,
		},
		"one element less": {before: tree{"a": list("b", "c")}, after: tree{"a": list("b")}, wantAny: true},
		"the last element leaves": {
			before:      tree{"a": list("b")},
			after:       tree{"a": list()},
			want:        tree{"a": list()},
			wantAny:     true,
			wantEmptied: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var c changes
			got := c.object(tc.before, tc.after)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			if c.any != tc.wantAny || c.emptied != tc.wantEmptied {
				t.Errorf("any: %t, emptied: %t, want %t and %t", c.any, c.emptied, tc.wantAny, tc.wantEmptied)
			}
		})
	}
}

// TestCheckOfChangesEqualsCheckOfAll: the check of the changed fields has the result of the
// check of the whole object.
func TestCheckOfChangesEqualsCheckOfAll(t *testing.T) {
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	review, err := bench.Request("ok")
	if err != nil {
		t.Fatal(err)
	}
	pod, err := unstructuredjson.Decode(review.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	refused, settled, quick := 0, 0, 0
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		before := &unstructured.Unstructured{Object: pod}
		if random.IntN(3) == 0 {
			before = scrambled(random, before)
		}
		after := scrambled(random, before)
		got, gotErr := CheckResult(before, after, interfaces)
		want, wantErr := checkAll(before, after, interfaces)
		// The reported one of several errors varies with the order of a map.
		if (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("seed %d: error %q, want %q", seed, messageOf(gotErr), messageOf(wantErr))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: result (-want +got):\n%s", seed, diff)
		}
		switch {
		case gotErr != nil:
			refused++
		case got == after:
			quick++
		case !Equal(got, after):
			settled++
		}
	}
	if refused < 100 || settled < 5 || quick < 100 {
		t.Errorf("%d refused, %d pruned, %d unchanged: too few of one kind", refused, settled, quick)
	}
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// scrambled is an object with something changed somewhere in it.
func scrambled(random *rand.Rand, u *unstructured.Unstructured) *unstructured.Unstructured {
	out := u.DeepCopy()
	for range 1 + random.IntN(2) {
		var at any = out.Object
		for depth := 0; ; depth++ {
			next, ok := child(random, at)
			if !ok || depth > 0 && random.IntN(4) == 0 {
				break
			}
			at = next
		}
		switch at := at.(type) {
		case map[string]any:
			changeObject(random, at)
		case []any:
			at[random.IntN(len(at))] = anyValue(random)
		}
	}
	return out
}

func child(random *rand.Rand, at any) (any, bool) {
	var all []any
	switch at := at.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(at)) {
			all = append(all, at[name])
		}
	case []any:
		all = at
	}
	var found []any
	for _, c := range all {
		switch c := c.(type) {
		case map[string]any:
			found = append(found, c)
		case []any:
			if len(c) > 0 {
				found = append(found, c)
			}
		}
	}
	if len(found) == 0 {
		return nil, false
	}
	return found[random.IntN(len(found))], true
}

func changeObject(random *rand.Rand, object map[string]any) {
	names := append(slices.Sorted(maps.Keys(object)), "labels", "hostNetwork", "tty", "nope", "image")
	name := names[random.IntN(len(names))]
	if name == "kind" || name == "apiVersion" {
		return
	}
	switch old := object[name].(type) {
	case []any:
		if random.IntN(2) == 0 && len(old) > 0 {
			object[name] = append([]any{old[len(old)-1]}, old...)
			return
		}
	case string:
		if random.IntN(2) == 0 {
			object[name] = old + "x"
			return
		}
	}
	if random.IntN(4) == 0 {
		delete(object, name)
		return
	}
	object[name] = anyValue(random)
}

func anyValue(random *rand.Rand) any {
	values := []any{
		"a", "", int64(1), int64(0), true, false, nil, map[string]any{}, map[string]any{"name": "a"},
		map[string]any{"nope": int64(1)}, []any{}, []any{"a"}, []any{map[string]any{"name": "a"}},
	}
	return values[random.IntN(len(values))]
}
