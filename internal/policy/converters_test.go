package policy

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// testConverters know the built-in kinds by the schemas that client-go was
// generated from, and a few more by their own. Both engines are given them.
type testConverters struct{}

// GetTypeConverter implements TypeConverters.
func (testConverters) GetTypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	switch {
	case gvk.Kind == "Widget":
		return widgetConverter
	case gvk.Kind == "Scale":
		return scaleConverter
	case scheme.Scheme.Recognizes(gvk):
		return builtInConverter
	default:
		return nil
	}
}

var (
	builtInConverter = applyconfigurations.NewTypeConverter(scheme.Scheme)
	widgetConverter  = newConverter("com.example.v1.Widget", widgetSchema)
	scaleConverter   = newConverter("io.k8s.api.autoscaling.v1.Scale", scaleSchema)
)

// widgetSchema is a custom resource's, as the API server would publish it.
const widgetSchema = `{
  "type": "object",
  "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}],
  "properties": {
    "apiVersion": {"type": "string"}, "kind": {"type": "string"},
    "metadata": {"type": "object", "properties": {
      "name": {"type": "string"}, "namespace": {"type": "string"}, "uid": {"type": "string"},
      "labels": {"type": "object", "additionalProperties": {"type": "string"}},
      "annotations": {"type": "object", "additionalProperties": {"type": "string"}}
    }},
    "spec": {"type": "object", "properties": {
      "ratio": {"type": "number"}, "count": {"type": "integer"}, "big": {"type": "integer"}, "tiny": {"type": "number"}, "flag": {"type": "boolean"},
      "name": {"type": "string"},
      "mixed": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}},
      "empty": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
      "none": {"type": "string", "nullable": true},
      "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
      "closed": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
      "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "size"], "items": {"type": "object", "required": ["name", "size"], "properties": {
        "name": {"type": "string"}, "size": {"type": "integer"}, "color": {"type": "string"}
      }}},
      "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    }}
  }
}`

// scaleSchema is the API server's, which client-go has no use for.
const scaleSchema = `{
  "type": "object",
  "x-kubernetes-group-version-kind": [{"group": "autoscaling", "version": "v1", "kind": "Scale"}],
  "properties": {
    "apiVersion": {"type": "string"}, "kind": {"type": "string"},
    "metadata": {"type": "object", "properties": {
      "name": {"type": "string"}, "namespace": {"type": "string"},
      "labels": {"type": "object", "additionalProperties": {"type": "string"}},
      "annotations": {"type": "object", "additionalProperties": {"type": "string"}}
    }},
    "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "format": "int32"}}},
    "status": {"type": "object", "properties": {"replicas": {"type": "integer", "format": "int32"}, "selector": {"type": "string"}}}
  }
}`

func newConverter(name, text string) managedfields.TypeConverter {
	var s spec.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	converter, err := managedfields.NewTypeConverter(map[string]*spec.Schema{name: &s}, false)
	if err != nil {
		panic(err)
	}
	return converter
}
