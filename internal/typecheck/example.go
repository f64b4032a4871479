package typecheck

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxExampleDepth bounds objects in objects, which a schema could describe by itself.
const maxExampleDepth = 16

// Example returns an object of a custom kind, without apiVersion, kind and metadata. It has the
// required fields and those with a default; a sparse one has each optional struct too, with what
// is required in it. ok is false if the schema has rules besides types, which could reject it.
func (d *Document) Example(kind schema.GroupVersionKind, sparse bool) (object map[string]any, ok bool) {
	var root map[string]any
	if json.Unmarshal(d.raw[d.kinds[kind]], &root) != nil {
		return nil, false
	}
	e := example{sparse: sparse}
	properties, _ := root["properties"].(map[string]any)
	for _, name := range []string{"apiVersion", "kind", "metadata", "status"} { // the status of a new object is empty
		delete(properties, name)
	}
	value, ok := e.value(root, 0)
	object, isMap := value.(map[string]any)
	return object, ok && isMap
}

// example makes values of schemas. Their texts and numbers are arbitrary.
type example struct{ sparse bool }

// hasRules reports whether a schema restricts a value in another way than by its type.
func hasRules(s map[string]any) bool {
	for _, name := range []string{"x-kubernetes-validations", "oneOf", "anyOf", "allOf", "not", "$ref"} {
		if _, ok := s[name]; ok && s["x-kubernetes-int-or-string"] != true {
			return true
		}
	}
	return false
}

func (e example) value(s map[string]any, depth int) (value any, ok bool) {
	if value, ok := s["default"]; ok {
		return value, true
	}
	if hasRules(s) || depth > maxExampleDepth {
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
		if s["format"] == "date-time" {
			return "2001-09-09T01:46:40Z", true
		}
		return "probe", true
	case "integer", "number":
		if minimum, ok := s["minimum"].(float64); ok && minimum > 1 {
			return minimum, true
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
