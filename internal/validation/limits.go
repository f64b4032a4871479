package validation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/config/crd"
)

// MaxStored is the largest request of etcd by default, in bytes. A larger object cannot
// be stored.
const MaxStored = 3 << 19

// Limits are the sizes that the CustomResourceDefinition permits. The API server checks them
// before it calls the webhook; other callers do not.
type Limits struct{ root *limits }

// limits are those of a value, by the names of the schema.
type limits struct {
	MaxItems             *int               `json:"maxItems"`
	MaxLength            *int               `json:"maxLength"`
	MaxProperties        *int               `json:"maxProperties"`
	Items                *limits            `json:"items"`
	AdditionalProperties *limits            `json:"additionalProperties"`
	Properties           map[string]*limits `json:"properties"`
}

// ReadLimits reads the limits of policies from their definition.
func ReadLimits() (*Limits, error) {
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema *limits `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(crd.WebhookPolicies, &definition); err != nil {
		return nil, fmt.Errorf("reading the limits of policies: %w", err)
	}
	if len(definition.Spec.Versions) != 1 || definition.Spec.Versions[0].Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("reading the limits of policies: want one version with a schema, found %d versions",
			len(definition.Spec.Versions))
	}
	return &Limits{root: definition.Spec.Versions[0].Schema.OpenAPIV3Schema}, nil
}

// Check returns the first limit that a policy exceeds, nil if there is none. It reads the
// JSON token by token, and so needs no memory for a policy that is too large. The decoder
// reports invalid JSON.
func (l *Limits) Check(raw []byte) *field.Error {
	if len(raw) > MaxStored {
		return field.TooLong(field.NewPath("spec"), "", MaxStored)
	}
	if !json.Valid(raw) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return l.root.value(decoder, nil)
}

func (l *limits) value(decoder *json.Decoder, at *field.Path) *field.Error {
	token, err := decoder.Token()
	if err != nil {
		return nil //nolint:nilerr // the decoder reports invalid JSON
	}
	switch token := token.(type) {
	case string:
		if l.MaxLength != nil && utf8.RuneCountInString(token) > *l.MaxLength {
			return field.TooLong(at, "", *l.MaxLength)
		}
	case json.Delim:
		if token == '[' {
			return l.list(decoder, at)
		}
		return l.object(decoder, at)
	}
	return nil
}

func (l *limits) list(decoder *json.Decoder, at *field.Path) *field.Error {
	for n := 0; decoder.More(); n++ {
		if l.MaxItems != nil && n == *l.MaxItems {
			return field.TooMany(at, n+1, n)
		}
		if err := l.below(decoder, l.Items, at.Index(n)); err != nil {
			return err
		}
	}
	_, _ = decoder.Token()
	return nil
}

func (l *limits) object(decoder *json.Decoder, at *field.Path) *field.Error {
	for n := 0; decoder.More(); n++ {
		if l.MaxProperties != nil && n == *l.MaxProperties {
			return field.TooMany(at, n+1, n)
		}
		token, err := decoder.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return nil //nolint:nilerr // likewise
		}
		next, path := l.Properties[name], at.Child(name)
		if at == nil {
			path = field.NewPath(name)
		}
		if next == nil && l.AdditionalProperties != nil {
			next, path = l.AdditionalProperties, at.Key(name)
		}
		if err := l.below(decoder, next, path); err != nil {
			return err
		}
	}
	_, _ = decoder.Token()
	return nil
}

// below checks a value against its limits, and skips a value without limits.
func (l *limits) below(decoder *json.Decoder, next *limits, at *field.Path) *field.Error {
	if next == nil {
		var skipped json.RawMessage
		_ = decoder.Decode(&skipped) // the text is known to be valid
		return nil
	}
	return next.value(decoder, at)
}
