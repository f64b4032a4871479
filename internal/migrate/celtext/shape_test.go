package celtext

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestFields checks what is known about fields.
func TestFields(t *testing.T) {
	t.Parallel()
	pod := ShapeOfKinds(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	service := ShapeOfKinds(schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	both := ShapeOfKinds(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	tests := map[string]struct {
		of   Shape
		path string
		want Kind
	}{
		"text":                          {pod, "metadata.name", KindString},
		"a label":                       {pod, "metadata.labels.a", KindString},
		"a time":                        {pod, "metadata.creationTimestamp", KindString},
		"a list":                        {pod, "spec.containers", KindList},
		"a field of an element":         {pod, "spec.containers.*.tty", KindBool},
		"an integer":                    {pod, "spec.containers.*.ports.*.hostPort", KindInt},
		"a quantity":                    {pod, "spec.containers.*.resources.limits.cpu", KindQuantity},
		"an integer or text":            {service, "spec.ports.*.targetPort", KindIntOrString},
		"a field of several kinds":      {both, "metadata.name", KindString},
		"a field of one of them":        {both, "spec.clusterIP", KindString},
		"a field that is not known":     {pod, "spec.unknown", KindAny},
		"an object of an unknown kind":  {ShapeOfKinds(schema.GroupVersionKind{Kind: "Widget"}), "spec", KindAny},
		"a field of text":               {pod, "metadata.name.a", KindAny},
		"bytes":                         {ShapeOfKinds(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}), "data.a", KindString},
		"a field of an embedded struct": {pod, "spec.volumes.*.emptyDir.sizeLimit", KindQuantity},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tt.of
			for field := range strings.SplitSeq(tt.path, ".") {
				if field == "*" {
					s = s.Element()
				} else {
					s = s.Field(field)
				}
			}
			if got := s.Kind(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
