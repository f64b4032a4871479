package shape_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/migrate/kyverno/shape"
)

// TestFields checks what is known about fields.
func TestFields(t *testing.T) {
	t.Parallel()
	pod := shape.Of(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	service := shape.Of(schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	both := shape.Of(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	tests := map[string]struct {
		of   shape.Shape
		path string
		want shape.Kind
	}{
		"text":                          {pod, "metadata.name", shape.String},
		"a label":                       {pod, "metadata.labels.a", shape.String},
		"a time":                        {pod, "metadata.creationTimestamp", shape.String},
		"a list":                        {pod, "spec.containers", shape.List},
		"a field of an element":         {pod, "spec.containers.*.tty", shape.Bool},
		"an integer":                    {pod, "spec.containers.*.ports.*.hostPort", shape.Int},
		"a quantity":                    {pod, "spec.containers.*.resources.limits.cpu", shape.Quantity},
		"an integer or text":            {service, "spec.ports.*.targetPort", shape.IntOrString},
		"a field of several kinds":      {both, "metadata.name", shape.String},
		"a field of one of them":        {both, "spec.clusterIP", shape.String},
		"a field that is not known":     {pod, "spec.unknown", shape.Any},
		"an object of an unknown kind":  {shape.Of(schema.GroupVersionKind{Kind: "Widget"}), "spec", shape.Any},
		"a field of text":               {pod, "metadata.name.a", shape.Any},
		"bytes":                         {shape.Of(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}), "data.a", shape.String},
		"a field of an embedded struct": {pod, "spec.volumes.*.emptyDir.sizeLimit", shape.Quantity},
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
