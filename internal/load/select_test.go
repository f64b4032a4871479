package load

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSelect(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{"a.yaml": pod, "b.yaml": "no: kind", "k/kustomization.yaml": "resources: []"}))
	got, err := Objects(t.Context(), []string{"."}, Options{Select: func(text []byte) bool { return bytes.Contains(text, []byte("Pod")) }})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Pod shop/web"}, namesOf(got)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}
