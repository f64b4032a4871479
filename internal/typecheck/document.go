package typecheck

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Document is the OpenAPI v3 document of one group version. Its schemas are decoded
// when they are needed: an expression reads few of the hundreds. It is safe for
// concurrent use.
type Document struct {
	raw   map[string]json.RawMessage
	kinds map[schema.GroupVersionKind]string // names in raw

	mu      sync.Mutex
	decoded map[string]*definition

	examplesMu sync.Mutex
	examples   map[schema.GroupVersionKind][]map[string]any
}

// ParseDocument parses a document as API servers publish it.
func ParseDocument(text []byte) (*Document, error) {
	var parsed struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, fmt.Errorf("parsing an OpenAPI document: %w", err)
	}
	d := &Document{raw: parsed.Components.Schemas, kinds: map[schema.GroupVersionKind]string{}, decoded: map[string]*definition{},
		examples: map[schema.GroupVersionKind][]map[string]any{}}
	for name, raw := range d.raw {
		var named struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(raw, &named); err != nil {
			continue // a schema without a kind, or of another form
		}
		for _, kind := range named.Kinds {
			d.kinds[kind] = name
		}
	}
	return d, nil
}

// Has reports whether the document has the schema of a kind.
func (d *Document) Has(kind schema.GroupVersionKind) bool {
	_, ok := d.kinds[kind]
	return ok
}

// definition is the part of a schema that decides the type of a value.
type definition struct {
	Ref                  string                 `json:"$ref"`
	AllOf                []definition           `json:"allOf"`
	Type                 string                 `json:"type"`
	Format               string                 `json:"format"`
	Properties           map[string]*definition `json:"properties"`
	AdditionalProperties *additional            `json:"additionalProperties"`
	Items                *definition            `json:"items"`
	Required             []string               `json:"required"`
	MapKeys              []string               `json:"x-kubernetes-list-map-keys"`
	IntOrString          bool                   `json:"x-kubernetes-int-or-string"`
	Open                 bool                   `json:"x-kubernetes-preserve-unknown-fields"`
}

// additional is a schema, or true or false.
type additional struct{ definition }

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(text []byte) error {
	if text := string(text); text == "true" || text == "false" {
		return nil
	}
	return json.Unmarshal(text, &a.definition)
}

// resolve follows references. A definition that cannot be resolved is empty, so that
// its type is not known.
func (d *Document) resolve(def *definition) *definition {
	for range maxReferences {
		ref := def.Ref
		if ref == "" && len(def.AllOf) == 1 { // a reference that has a description or a default
			ref = def.AllOf[0].Ref
		}
		if ref == "" {
			return def
		}
		def = d.decode(strings.TrimPrefix(ref, "#/components/schemas/"))
	}
	return &definition{}
}

// maxReferences bounds a chain of references, which could be a circle.
const maxReferences = 10

func (d *Document) decode(name string) *definition {
	d.mu.Lock()
	defer d.mu.Unlock()
	if def := d.decoded[name]; def != nil {
		return def
	}
	def := &definition{}
	if err := json.Unmarshal(d.raw[name], def); err != nil {
		def = &definition{}
	}
	d.decoded[name] = def
	return def
}
