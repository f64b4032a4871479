package versionskew

import (
	"encoding/json"
	"fmt"
)

// Schema is the part of an OpenAPI schema that names fields.
type Schema struct {
	Properties map[string]Schema `json:"properties"`
	Items      *Schema           `json:"items"`
}

// Fields returns the fields of an object or of the elements of a list, nil if there are none.
func (s Schema) Fields() Fields {
	if s.Items != nil {
		return s.Items.Fields()
	}
	if len(s.Properties) == 0 {
		return nil
	}
	out := make(Fields, len(s.Properties))
	for name, property := range s.Properties {
		out[name] = property.Fields()
	}
	return out
}

// FieldsOfOpenAPI returns the fields of the spec of a kind in an OpenAPI v3 document of its API
// group.
func FieldsOfOpenAPI(document []byte, kind string) (Fields, error) {
	var parsed struct {
		Components struct {
			Schemas map[string]struct {
				Schema
				Kinds []struct {
					Kind string `json:"kind"`
				} `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &parsed); err != nil {
		return nil, fmt.Errorf("decoding the schema of an API group: %w", err)
	}
	for _, schema := range parsed.Components.Schemas {
		if len(schema.Kinds) == 1 && schema.Kinds[0].Kind == kind {
			return schema.Properties["spec"].Fields(), nil
		}
	}
	return nil, fmt.Errorf("the API server has no schema of %s", kind)
}
