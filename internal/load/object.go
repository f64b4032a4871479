package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Object is one object of an input.
type Object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	// Raw is the object in JSON.
	Raw []byte `json:"-"`

	document *document
	path     []string // of the object in its document
}

// Metadata is the part of an object's metadata that selects it.
type Metadata struct {
	Name         string            `json:"name"`
	GenerateName string            `json:"generateName"`
	Namespace    string            `json:"namespace"`
	Labels       map[string]string `json:"labels"`
}

// GroupVersionKind returns the kind of the object.
func (o *Object) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
}

// String is "Kind namespace/name".
func (o *Object) String() string {
	name := o.Metadata.Name
	if name == "" {
		name = o.Metadata.GenerateName
	}
	if o.Metadata.Namespace != "" {
		name = o.Metadata.Namespace + "/" + name
	}
	return o.Kind + " " + name
}

// New returns an object that is part of another one, such as the object of a test case. It
// has the positions of that part. The part needs apiVersion and kind.
func (o *Object) New(raw []byte, field string) (*Object, error) {
	return newObject(o.document, raw, append(append([]string(nil), o.path...), SplitField(field)...))
}

// FromJSON returns an object that is in no file. Problems name the source.
func FromJSON(source string, raw []byte) (*Object, error) {
	return newObject(&document{file: source}, raw, nil)
}

func newObject(d *document, raw []byte, path []string) (*Object, error) {
	o := &Object{document: d, path: path}
	if err := json.Unmarshal(raw, o); err != nil {
		var wrong *json.UnmarshalTypeError
		if !errors.As(err, &wrong) {
			return nil, o.Errorf("", "not an object: %v", err)
		}
		return nil, o.Errorf(wrong.Field, "got %s, want %s", article(wrong.Value), wanted(wrong))
	}
	o.Raw = raw
	switch {
	case o.Kind == "":
		return nil, o.Errorf("", "the document has no kind: add apiVersion and kind")
	case o.APIVersion == "":
		return nil, o.Errorf("kind", "the document has no apiVersion: add it")
	}
	if _, err := schema.ParseGroupVersion(o.APIVersion); err != nil {
		return nil, o.Errorf("apiVersion", "write it as group/version or v1, got %q", o.APIVersion)
	}
	return o, nil
}

// article puts an article before the name of a JSON type.
func article(value string) string {
	if strings.HasPrefix(value, "number") {
		return value
	}
	if strings.IndexAny(value, "aeio") == 0 {
		return "an " + value
	}
	return "a " + value
}

// wanted names the JSON type that a Go type needs.
func wanted(e *json.UnmarshalTypeError) string {
	if e.Type == nil {
		return "another type"
	}
	switch name := e.Type.Kind().String(); name {
	case "struct", "map", "ptr":
		return "an object"
	case "slice", "array":
		return "an array"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	default:
		return "a number"
	}
}

// Read decodes the fields of a Go value and ignores others.
func (o *Object) Read(into any) error {
	if err := json.Unmarshal(o.Raw, into); err != nil {
		return o.Errorf("", "%s: %v", o.Kind, err)
	}
	return nil
}

// Decode decodes the object into a Go value and rejects unknown fields.
func (o *Object) Decode(into any) error {
	unknown, err := o.DecodeKnown(into)
	if err != nil {
		return err
	}
	var all []error
	for _, field := range unknown {
		all = append(all, o.Errorf(field, "%s has no such field: correct or remove it", o.Kind))
	}
	return errors.Join(all...)
}

// DecodeKnown decodes the fields of a Go value, and returns others.
func (o *Object) DecodeKnown(into any) (unknown []string, err error) {
	unknown, err = DecodeKnown(o.Raw, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		path := fieldAt(o.Raw, wrong.Offset)
		return nil, o.Errorf(joinField(path), "got %s, want %s", article(wrong.Value), wanted(wrong))
	case err != nil:
		return nil, o.Errorf("", "%s: %v", o.Kind, err)
	}
	return unknown, nil
}

// DecodeKnown decodes the fields of JSON that a Go value has, and returns others.
func DecodeKnown(raw []byte, into any) (unknown []string, err error) {
	strict, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowUnknownFields)
	for _, problem := range strict {
		var field kjson.FieldError
		if !errors.As(problem, &field) {
			return nil, problem
		}
		unknown = append(unknown, field.FieldPath())
	}
	return unknown, err
}

// joinField writes a path as Kubernetes does.
func joinField(path []string) string {
	var out strings.Builder
	for _, element := range path {
		switch {
		case strings.Trim(element, "0123456789") == "" && element != "":
			fmt.Fprintf(&out, "[%s]", element)
		case out.Len() > 0:
			out.WriteString("." + element)
		default:
			out.WriteString(element)
		}
	}
	return out.String()
}

// expand adds the items of a list and of the lists in it, or the object itself.
func (c *content) expand(o *Object) {
	if !strings.HasSuffix(o.Kind, "List") {
		c.objects = append(c.objects, *o)
		return
	}
	items, err := o.items()
	switch {
	case err != nil:
		c.problem(err)
	case items == nil: // a kind with such a name
		c.objects = append(c.objects, *o)
	}
	for i, raw := range items {
		item, err := newObject(o.document, o.typed(raw), append(slices.Clone(o.path), "items", fmt.Sprint(i)))
		if err != nil {
			c.problem(err)
			continue
		}
		c.expand(item)
	}
}

// items returns the items of a list; nil if it is the object of a kind whose name ends as
// that of a list.
func (o *Object) items() ([]json.RawMessage, error) {
	var list struct {
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(o.Raw, &list); err != nil {
		return nil, o.Errorf("", "not a list: %v", err)
	}
	var items []json.RawMessage
	err := json.Unmarshal(list.Items, &items)
	isList := err == nil && !slices.ContainsFunc(items, func(raw json.RawMessage) bool { return raw[0] != '{' })
	switch {
	case o.APIVersion == "v1" && !isList && len(list.Items) > 0:
		return nil, o.Errorf("items", "want an array of objects")
	case o.APIVersion == "v1" || isList:
		return append([]json.RawMessage{}, items...), nil
	}
	return nil, nil
}

// typed returns an item with apiVersion and kind. Lists of API servers state the kind of
// their items only once.
func (o *Object) typed(item json.RawMessage) []byte {
	kind := strings.TrimSuffix(o.Kind, "List")
	if kind == "" || !isUntyped(item) {
		return item
	}
	head, err := json.Marshal(metav1.TypeMeta{APIVersion: o.APIVersion, Kind: kind})
	if err != nil {
		return item
	}
	out := bytes.TrimSuffix(head, []byte("}"))
	rest := bytes.TrimSpace(item[1:])
	if rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}
