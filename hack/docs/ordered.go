package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// object is a JSON object that keeps the order of its fields.
type object struct {
	keys   []string
	fields map[string]any
}

func newObject() *object { return &object{fields: map[string]any{}} }

func (o *object) set(key string, value any) *object {
	if _, known := o.fields[key]; !known {
		o.keys = append(o.keys, key)
	}
	o.fields[key] = value
	return o
}

func (o *object) text(key string) string {
	s, _ := o.fields[key].(string)
	return s
}

func (o *object) object(key string) *object {
	if child, ok := o.fields[key].(*object); ok {
		return child
	}
	return newObject()
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return errors.Join(err, errors.New("an object was expected"))
	}
	*o = *newObject()
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		name := key.(string) // JSON keys are strings
		if o.fields[name] != nil {
			return fmt.Errorf("%q is there twice", name)
		}
		if o.fields[name], err = ordered(value); err != nil {
			return err
		}
		o.keys = append(o.keys, name)
	}
	return nil
}

// ordered decodes a value and keeps the order of its objects, except in lists.
func ordered(raw json.RawMessage) (any, error) {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && trimmed[0] == '{' {
		child := newObject()
		err := child.UnmarshalJSON(trimmed)
		return child, err
	}
	var value any
	err := json.Unmarshal(raw, &value)
	return value, err
}

// write appends the object as JSON, indented.
func (o *object) write(b *strings.Builder, indent string) error {
	if len(o.keys) == 0 {
		b.WriteString("{}")
		return nil
	}
	b.WriteString("{")
	for i, key := range o.keys {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(b, "\n%s  %q: ", indent, key)
		if child, ok := o.fields[key].(*object); ok {
			if err := child.write(b, indent+"  "); err != nil {
				return err
			}
			continue
		}
		text, err := plain(o.fields[key])
		if err != nil {
			return err
		}
		b.WriteString(text)
	}
	b.WriteString("\n" + indent + "}")
	return nil
}

// plain returns a value in one line of JSON, which is also YAML.
func plain(value any) (string, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if o, ok := value.(*object); ok {
		var text strings.Builder
		if err := o.write(&text, ""); err != nil {
			return "", err
		}
		value = json.RawMessage(text.String())
	}
	err := encoder.Encode(value)
	return strings.TrimSpace(b.String()), err
}
