package objectpatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestCheckResultPrunesEmptyFields(t *testing.T) {
	pod := func(metadata, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
	}
	containers := []any{map[string]any{"name": "a", "resources": map[string]any{}}}
	tests := map[string]struct {
		before, in, want map[string]any
	}{
		"nothing is empty": {
			in:   pod(map[string]any{"labels": map[string]any{"a": "b"}}, map[string]any{"containers": containers}),
			want: pod(map[string]any{"labels": map[string]any{"a": "b"}}, map[string]any{"containers": containers}),
		},
		"emptied labels": {
			in:   pod(map[string]any{"name": "x", "labels": map[string]any{}}, map[string]any{"containers": containers}),
			want: pod(map[string]any{"name": "x"}, map[string]any{"containers": containers}),
		},
		"false, deep in a list": {
			in: pod(map[string]any{}, map[string]any{
				"containers":  []any{map[string]any{"name": "a", "tty": false, "args": []any{}}},
				"hostNetwork": false,
			}),
			want: pod(map[string]any{}, map[string]any{"containers": []any{map[string]any{"name": "a"}}}),
		},
		"false behind a pointer stays": {
			in:   pod(map[string]any{}, map[string]any{"containers": containers, "automountServiceAccountToken": false}),
			want: pod(map[string]any{}, map[string]any{"containers": containers, "automountServiceAccountToken": false}),
		},
		"empty before": {
			before: pod(map[string]any{"creationTimestamp": nil, "labels": map[string]any{"a": "b"}},
				map[string]any{"containers": []any{map[string]any{"name": "a", "tty": false}}}),
			in: pod(map[string]any{"creationTimestamp": nil, "labels": map[string]any{}},
				map[string]any{"containers": []any{map[string]any{"name": "a", "tty": false, "stdin": false}}}),
			want: pod(map[string]any{"creationTimestamp": nil},
				map[string]any{"containers": []any{map[string]any{"name": "a", "tty": false}}}),
		},
		"what the type does not know stays": {
			before: pod(map[string]any{}, map[string]any{"containers": containers, "fromTheFuture": int64(1)}),
			in:     pod(map[string]any{}, map[string]any{"containers": containers, "fromTheFuture": int64(1)}),
			want:   pod(map[string]any{}, map[string]any{"containers": containers, "fromTheFuture": int64(1)}),
		},
		"what the type does not know stays, though empty": {
			before: pod(map[string]any{}, map[string]any{"containers": containers, "fromTheFuture": false}),
			in:     pod(map[string]any{}, map[string]any{"containers": containers, "fromTheFuture": false}),
			want:   pod(map[string]any{}, map[string]any{"containers": containers, "fromTheFuture": false}),
		},
		"a kind without a type": {
			in:   map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"a": false}},
			want: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"a": false}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := &unstructured.Unstructured{Object: tc.in}
			before := in.DeepCopy()
			settled, err := CheckResult(&unstructured.Unstructured{Object: tc.before}, in, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := settled.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("result is a %T", settled)
			}
			if diff := cmp.Diff(tc.want, got.Object); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before.Object, in.Object); diff != "" {
				t.Errorf("the object that was handed in was changed (-before +after):\n%s", diff)
			}
		})
	}
}
