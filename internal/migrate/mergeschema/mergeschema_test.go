package mergeschema

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The atomic fields and the keys are those of the API of Kubernetes.
func TestSchema(t *testing.T) {
	type kinds = []schema.GroupVersionKind
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	custom := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	const secretRef = "spec.containers.[].env.[].valueFrom.secretKeyRef"
	tests := map[string]struct {
		kinds       kinds
		path        string // with [] for the elements of a list
		wantUnknown bool
		wantAtomic  bool
		wantKeys    string
	}{
		"a map of an author":        {kinds: kinds{pod}, path: "metadata.labels"},
		"a field of several kinds":  {kinds: kinds{pod, deployment}, path: "metadata.annotations"},
		"an atomic map":             {kinds: kinds{pod}, path: "spec.nodeSelector", wantAtomic: true},
		"an atomic list":            {kinds: kinds{pod}, path: "spec.tolerations", wantAtomic: true},
		"an atomic object":          {kinds: kinds{deployment}, path: "spec.selector", wantAtomic: true},
		"a list with a key":         {kinds: kinds{pod}, path: "spec.containers", wantKeys: "name"},
		"another key":               {kinds: kinds{pod}, path: "spec.containers.[].volumeMounts", wantKeys: "mountPath"},
		"several keys":              {kinds: kinds{pod}, path: "spec.containers.[].ports", wantKeys: "containerPort protocol"},
		"atomic elements":           {kinds: kinds{pod}, path: "spec.imagePullSecrets.[]", wantAtomic: true},
		"an object in an element":   {kinds: kinds{pod}, path: secretRef, wantAtomic: true},
		"a field that no kind has":  {kinds: kinds{pod}, path: "spec.nope", wantUnknown: true},
		"a field of one of two":     {kinds: kinds{pod, deployment}, path: "spec.nodeSelector", wantUnknown: true},
		"a custom kind":             {kinds: kinds{custom}, path: "spec", wantUnknown: true},
		"metadata of a custom kind": {kinds: kinds{custom, pod}, path: "metadata.labels"},
		"any kind":                  {path: "spec", wantUnknown: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := OfKinds(tt.kinds...)
			for field := range strings.SplitSeq(tt.path, ".") {
				if field == "[]" {
					s = s.Element()
				} else {
					s = s.Field(field)
				}
			}
			if s.IsKnown() == tt.wantUnknown || s.IsAtomic() != tt.wantAtomic {
				t.Errorf("got known %v and atomic %v, want unknown %v and atomic %v",
					s.IsKnown(), s.IsAtomic(), tt.wantUnknown, tt.wantAtomic)
			}
			if got := strings.Join(s.Keys(), " "); got != tt.wantKeys {
				t.Errorf("keys: got %q, want %q", got, tt.wantKeys)
			}
		})
	}
}
