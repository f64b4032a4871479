package versionskew

import (
	"encoding/json"
	"errors"
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

// FieldsOfOpenAPI returns the fields of the spec of WebhookPolicies in an OpenAPI v3 document of
// their API group.
func FieldsOfOpenAPI(document []byte) (Fields, error) {
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
		return nil, fmt.Errorf("decoding the schema of policies: %w", err)
	}
	for _, schema := range parsed.Components.Schemas {
		if len(schema.Kinds) == 1 && schema.Kinds[0].Kind == "WebhookPolicy" {
			return schema.Properties["spec"].Fields(), nil
		}
	}
	return nil, errors.New("the API server has no schema of WebhookPolicy")
}
