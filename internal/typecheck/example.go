package typecheck

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ostiary/ostiary/internal/crdschema"
)

// maxExampleDepth bounds objects in objects, which a schema could describe by itself.
const maxExampleDepth = 16

// Examples returns objects of a custom kind that an API server accepts: one with the required
// fields and those with a default, and one with each optional struct too, with what is required in
// it. Objects that the schema or its rules reject are left out. Callers may change the objects.
func (d *Document) Examples(ctx context.Context, kind schema.GroupVersionKind) (out []map[string]any) {
	d.examplesMu.Lock()
	defer d.examplesMu.Unlock()
	known, ok := d.examples[kind]
	if !ok {
		known = d.makeExamples(ctx, kind)
		if ctx.Err() == nil {
			d.examples[kind] = known
		}
	}
	for _, object := range known {
		out = append(out, runtime.DeepCopyJSON(object))
	}
	return out
}

func (d *Document) makeExamples(ctx context.Context, kind schema.GroupVersionKind) (out []map[string]any) {
	var root map[string]any
	if json.Unmarshal(d.raw[d.kinds[kind]], &root) != nil {
		return nil
	}
	properties, _ := root["properties"].(map[string]any)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(properties, name)
	}
	checked := compileSchema(root)
	delete(properties, "status") // that of a new object is empty
	if checked == nil {
		return nil
	}
	for _, sparse := range []bool{false, true} {
		value, ok := example{sparse: sparse}.value(root, 0)
		object, isMap := unstructuredOf(value).(map[string]any)
		if !ok || !isMap {
			continue
		}
		object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
		object["metadata"] = map[string]any{"name": "probe"}
		if len(checked.Check(ctx, object)) == 0 {
			out = append(out, object)
		}
	}
	return out
}

// compileSchema returns the schema of a custom resource. It is nil for another one, such as that of
// a built-in kind, which refers to other schemas.
func compileSchema(root map[string]any) *crdschema.Schema {
	text, err := json.Marshal(root)
	if err != nil || bytes.Contains(text, []byte(`"$ref":`)) {
		return nil
	}
	var parsed apiextensionsv1.JSONSchemaProps
	if json.Unmarshal(text, &parsed) != nil {
		return nil
	}
	out, err := crdschema.New(&parsed)
	if err != nil {
		return nil
	}
	return out
}

// unstructuredOf returns a value with numbers of the types that unstructured objects have.
func unstructuredOf(value any) (out any) {
	text, err := json.Marshal(value)
	if err != nil || utiljson.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

// example makes values of schemas. Their texts and numbers are arbitrary.
type example struct{ sparse bool }

func (e example) value(s map[string]any, depth int) (value any, ok bool) {
	if value, ok := s["default"]; ok {
		return value, true
	}
	if depth > maxExampleDepth {
		return nil, false
	}
	if enum, ok := s["enum"].([]any); ok && len(enum) > 0 {
		return enum[0], true
	}
	switch s["type"] {
	case "object":
		return e.object(s, depth)
	case "array":
		return e.list(s, depth)
	case "string":
		return exampleText(s), true
	case "integer", "number":
		if minimum, ok := s["minimum"].(float64); ok && minimum > 1 {
			return minimum, true
		}
		if maximum, ok := s["maximum"].(float64); ok && maximum < 1 {
			return maximum, true
		}
		return float64(1), true
	case "boolean":
		return true, true
	}
	if s["x-kubernetes-int-or-string"] == true {
		return "1", true
	}
	return nil, false
}

func (e example) object(s map[string]any, depth int) (any, bool) {
	out := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for name, p := range properties {
		property, ok := p.(map[string]any)
		if !ok {
			return nil, false
		}
		needed := slices.Contains(required, any(name))
		fields, _ := property["properties"].(map[string]any)
		_, defaulted := property["default"]
		if !needed && !defaulted && (!e.sparse || len(fields) == 0) {
			continue
		}
		value, ok := e.value(property, depth+1)
		switch {
		case ok:
			out[name] = value
		case needed:
			return nil, false
		}
	}
	for _, name := range required {
		if text, ok := name.(string); ok && !strings.HasPrefix(text, "metadata") && out[text] == nil &&
			properties[text] != nil {
			return nil, false
		}
	}
	return out, true
}

func (e example) list(s map[string]any, depth int) (any, bool) {
	if minimum, ok := s["minItems"].(float64); !ok || minimum < 1 {
		return []any{}, true
	}
	items, ok := s["items"].(map[string]any)
	if !ok {
		return nil, false
	}
	item, ok := e.value(items, depth+1)
	return []any{item}, ok
}

// exampleText returns a text that matches the pattern and the length of a schema, if one of the
// common ones does.
func exampleText(s map[string]any) string {
	if s["format"] == "date-time" {
		return "2001-09-09T01:46:40Z"
	}
	minimum, _ := s["minLength"].(float64)
	maximum, limited := s["maxLength"].(float64)
	text, _ := s["pattern"].(string)
	pattern, err := regexp.Compile(text)
	if err != nil {
		return "probe"
	}
	common := []string{"probe", "probe.example.com", "https://probe.example.com", "example.com/probe", "1", "1s", "1Gi", "v1",
		"Probe", "PROBE", "a", "10.0.0.1", "10.0.0.0/8", "00000000-0000-0000-0000-000000000000"}
	for _, t := range common {
		if float64(len(t)) >= minimum && (!limited || float64(len(t)) <= maximum) && pattern.MatchString(t) {
			return t
		}
	}
	return "probe"
}
