package podtemplate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestChangedPodInItsTemplate: the change of the Pod of a template is in a copy of the workload, with what controllers copy.
func TestChangedPodInItsTemplate(t *testing.T) {
	path := []string{"spec", "template"}
	workload := map[string]any{"kind": "Deployment", "spec": map[string]any{
		"replicas": int64(2),
		"template": map[string]any{"metadata": map[string]any{"name": "kept"}, "spec": map[string]any{"hostNetwork": true}},
	}}
	before := (&unstructured.Unstructured{Object: workload}).DeepCopy()
	template, err := At(&unstructured.Unstructured{Object: workload}, path)
	if err != nil {
		t.Fatal(err)
	}
	pod, ok := Pod(template, "shop").(*unstructured.Unstructured)
	if !ok || pod.GetKind() != "Pod" || pod.GetNamespace() != "shop" {
		t.Fatalf("got %v, want a Pod in the namespace of the workload", pod)
	}
	changed := pod.DeepCopy()
	changed.SetLabels(map[string]string{"app": "web"})
	delete(changed.Object, "spec")
	if err := CheckChange(pod, changed); err != nil {
		t.Errorf("a template can have this change: %v", err)
	}
	got := Replace(workload, path, changed.Object)
	want := map[string]any{"kind": "Deployment", "spec": map[string]any{
		"replicas": int64(2),
		"template": map[string]any{"metadata": map[string]any{"name": "kept", "labels": map[string]any{"app": "web"}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workload (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, workload); diff != "" {
		t.Errorf("the argument was changed:\n%s", diff)
	}
}

func TestAt(t *testing.T) {
	tests := map[string]struct {
		object  runtime.Object
		want    map[string]any
		wantErr string
	}{
		"no object":   {},
		"no template": {object: &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}},
		"no tree": {
			object:  &unstructured.Unstructured{Object: map[string]any{"spec": "a"}},
			wantErr: "spec is a string and no object, so it is no pod template",
		},
		"a part that is no tree": {
			object:  &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": "a"}}}},
			wantErr: "spec.template.spec is a string and no object, so it is no part of a pod template",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := At(tc.object, []string{"spec", "template"})
			message := ""
			if err != nil {
				message = err.Error()
			}
			if message != tc.wantErr || cmp.Diff(tc.want, got) != "" {
				t.Errorf("got %v, %q, want %v, %q", got, message, tc.want, tc.wantErr)
			}
		})
	}
}

func TestCheckChange(t *testing.T) {
	pod := map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "a"}}
	for field, changed := range map[string]map[string]any{
		"status":        {"kind": "Pod", "metadata": map[string]any{"name": "a"}, "status": map[string]any{}},
		"metadata.name": {"kind": "Pod", "metadata": map[string]any{"name": "b"}},
	} {
		err := CheckChange(&unstructured.Unstructured{Object: pod}, &unstructured.Unstructured{Object: changed})
		if err == nil || err.Error() != OutsideError(field).Error() {
			t.Errorf("got %v, want %v", err, OutsideError(field))
		}
	}
}
