package objectpatch

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	smd "sigs.k8s.io/structured-merge-diff/v6/typed"
)

var merges = flag.Int("merges", 3000, "number of random merges")

// mergeSchema has every kind of list and map that a schema of Kubernetes can have. Its types contain themselves.
const mergeSchema = `types:
- name: all
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: text, type: {scalar: string}}
    - {name: number, type: {scalar: numeric}}
    - {name: any, type: {namedType: __untyped_deduced_}}
    - {name: opaque, type: {namedType: __untyped_atomic_}}
    - {name: same, type: {namedType: all}}
    - {name: whole, type: {namedType: all, elementRelationship: atomic}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: children, type: {map: {elementType: {namedType: all}}}}
    - {name: sealed, type: {map: {elementType: {namedType: all}, elementRelationship: atomic}}}
    - {name: nested, type: {map: {elementType: {map: {elementType: {scalar: string}, elementRelationship: atomic}}}}}
    - {name: keyed, type: {list: {elementType: {namedType: all}, elementRelationship: associative, keys: [text]}}}
    - {name: pairs, type: {list: {elementType: {namedType: all}, elementRelationship: associative, keys: [text, number]}}}
    - {name: set, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: sequence, type: {list: {elementType: {namedType: all}, elementRelationship: atomic}}}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

// parsedConverter is the converter of one type.
type parsedConverter struct{ smd.ParseableType }

func (c parsedConverter) ObjectToTyped(o runtime.Object, options ...smd.ValidationOptions) (*smd.TypedValue, error) {
	u, _ := o.(*unstructured.Unstructured)
	return c.FromUnstructured(u.Object, options...)
}

func (c parsedConverter) TypedToObject(value *smd.TypedValue) (runtime.Object, error) {
	tree, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// randomTree returns an object for mergeSchema. A few of its values do not fit.
func randomTree(r *rand.Rand, depth int) map[string]any {
	tree := map[string]any{}
	names := strings.Fields("text number any opaque same whole labels children sealed nested keyed pairs set sequence")
	for range 1 + r.IntN(4) {
		name := names[r.IntN(len(names))]
		if r.IntN(60) == 0 {
			tree[name] = randomValue(r, names[r.IntN(len(names))], depth)
			continue
		}
		tree[name] = randomValue(r, name, depth)
	}
	return tree
}

func randomValue(r *rand.Rand, name string, depth int) any {
	text := func() string { return string(rune('a' + r.IntN(3))) }
	inner := func() any {
		if depth <= 0 {
			return map[string]any{"text": text()}
		}
		return randomTree(r, depth-1)
	}
	if r.IntN(25) == 0 {
		return []any{nil, map[string]any{}, []any{}, ""}[r.IntN(4)]
	}
	switch name {
	case "number":
		return int64(r.IntN(3))
	case "any", "opaque":
		return []any{text(), inner(), []any{text()}, int64(1)}[r.IntN(4)]
	case "same", "whole":
		return inner()
	case "labels":
		return map[string]any{text(): text(), text(): text()}
	case "nested":
		return map[string]any{text(): map[string]any{text(): text()}}
	case "children", "sealed":
		return map[string]any{text(): inner(), text(): inner()}
	case "set":
		return []any{text(), text()}[:1+r.IntN(2)]
	case "keyed", "pairs", "sequence":
		var list []any
		for range r.IntN(4) {
			element, _ := inner().(map[string]any)
			if r.IntN(20) > 0 {
				element["text"] = text()
			}
			list = append(list, element)
		}
		return append([]any{}, list...)
	}
	return text()
}

// TestMergingConverter applies random patches with and without the converter. Results and errors are equal, also those of
// patches that follow, and no argument changes.
func TestMergingConverter(t *testing.T) {
	parser, err := smd.NewParser(mergeSchema)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	merged := 0
	for name, plain := range map[string]managedfields.TypeConverter{
		"a schema": parsedConverter{parser.Type("all")}, "no schema": managedfields.NewDeducedTypeConverter(),
	} {
		for range *merges / 2 {
			object := newTree(randomTree(r, 3))
			before := object.DeepCopy()
			converter := NewMergingConverter(plain)
			current, wanted := runtime.Object(object), runtime.Object(object.DeepCopy())
			for range 3 {
				change := newTree(randomTree(r, 3))
				got, gotErr := patch.ApplyStructuredMergeDiff(converter, current, change)
				want, wantErr := patch.ApplyStructuredMergeDiff(plain, wanted, change)
				if stage(wantErr) != stage(gotErr) {
					t.Fatalf("%s: want %v, got %v\n%v\n%v", name, wantErr, gotErr, current, change)
				}
				if wantErr != nil {
					continue
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%s: the results differ (-want +got):\n%s\n%v\n%v", name, diff, current, change)
				}
				merged++
				current, wanted = got, want
			}
			if diff := cmp.Diff(before, object); diff != "" {
				t.Fatalf("%s: the object has changed:\n%s", name, diff)
			}
		}
	}
	if merged < *merges {
		t.Errorf("%d of %d merges have a result", merged, 3**merges)
	}
}

func newTree(tree map[string]any) *unstructured.Unstructured {
	tree["apiVersion"], tree["kind"] = "example.com/v1", "All"
	return &unstructured.Unstructured{Object: tree}
}

// stage returns what failed. The rest of an error depends on the order in which maps are visited.
func stage(err error) string {
	before, _, _ := strings.Cut(fmt.Sprint(err), ":")
	return before
}

// TestMergeShares changes one label: everything beside it is shared with the object, so that what follows need not read it.
func TestMergeShares(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "a", "annotations": map[string]any{"a": "b"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "d"}}},
	}}
	change := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"labels": map[string]any{"a": "b"}},
	}}
	converter := NewMergingConverter(applyconfigurations.NewTypeConverter(scheme.Scheme))
	got, err := patch.ApplyStructuredMergeDiff(converter, object, change)
	if err != nil {
		t.Fatal(err)
	}
	result, _ := got.(*unstructured.Unstructured)
	for _, path := range [][]string{{"spec"}, {"metadata", "annotations"}} {
		was, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...) // it is there
		is, _, _ := unstructured.NestedFieldNoCopy(result.Object, path...)
		if !isSame(was, is) {
			t.Errorf("%v is a copy", path)
		}
	}
}
