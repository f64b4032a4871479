package versionskew

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Fields is the tree of the fields that a version of Ostiary knows, by name. The fields of the
// elements of a list are those of the list. Maps are values: their keys are no fields.
type Fields map[string]Fields

// Version is a version of Ostiary, as far as other versions have to know it.
type Version struct {
	// Fields are the fields of the spec of WebhookPolicies that the version knows.
	Fields Fields
	// Text is Fields.String.
	Text string
}

// NewVersion returns a version that knows some fields.
func NewVersion(known Fields) Version { return Version{Fields: known, Text: known.String()} }

// CurrentVersion returns the version of this program.
func CurrentVersion() Version { return NewVersion(KnownFields()) }

// KnownFields returns the fields of the spec of WebhookPolicies that this version knows.
func KnownFields() Fields { return fieldsOf(reflect.TypeFor[v1alpha1.WebhookPolicySpec]()) }

// KnownExceptionFields returns the fields of the specs of exceptions that this version knows.
func KnownExceptionFields() Fields {
	return fieldsOf(reflect.TypeFor[v1alpha1.WebhookPolicyExceptionSpec]())
}

// fieldsOf returns the fields of a type, nil if it has none.
func fieldsOf(t reflect.Type) Fields {
	t = elementOf(t)
	if t.Kind() != reflect.Struct || decodesItself(t) {
		return nil
	}
	out := Fields{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch name, inline := nameOf(f); {
		case inline:
			maps.Copy(out, fieldsOf(f.Type))
		case name != "":
			out[name] = fieldsOf(f.Type)
		}
	}
	return out
}

// elementOf returns the type of the innermost elements of pointers and lists.
func elementOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// decodesItself reports whether a type is a value in JSON, such as a time, and not an object with
// the fields of the struct.
func decodesItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// nameOf returns the name of a field in JSON, empty if JSON does not contain it. The fields of an
// inline one belong to its parent.
func nameOf(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || !f.IsExported() {
		return "", false
	}
	return name, f.Anonymous && name == "" || options == "inline"
}

// Unknown returns the paths of the fields that a policy sets and that are not among the fields.
// It is sorted, and names no field below an unknown one.
func (f Fields) Unknown(spec *v1alpha1.WebhookPolicySpec) []string {
	found := map[string]struct{}{}
	f.addUnknown(reflect.ValueOf(spec), "spec", found)
	return slices.Sorted(maps.Keys(found))
}

func (f Fields) addUnknown(v reflect.Value, path string, found map[string]struct{}) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			f.addUnknown(v.Elem(), path, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			f.addUnknown(v.Index(i), path, found)
		}
	case reflect.Struct:
		if !decodesItself(v.Type()) {
			f.addUnknownFields(v, path, found)
		}
	}
}

func (f Fields) addUnknownFields(v reflect.Value, path string, found map[string]struct{}) {
	for i := range v.NumField() {
		name, inline := nameOf(v.Type().Field(i))
		value := v.Field(i)
		if inline {
			f.addUnknown(value, path, found)
			continue
		}
		if name == "" || value.IsZero() {
			continue
		}
		at := path + "." + name
		children, known := f[name]
		if !known {
			found[at] = struct{}{}
			continue
		}
		children.addUnknown(value, at, found)
	}
}

// Missing returns the paths of the fields in all that are not among the fields.
func (f Fields) Missing(all Fields) []string {
	found := map[string]struct{}{}
	f.addMissing(all, "spec", found)
	return slices.Sorted(maps.Keys(found))
}

func (f Fields) addMissing(all Fields, path string, found map[string]struct{}) {
	for name, children := range all {
		at := path + "." + name
		have, known := f[name]
		if !known {
			found[at] = struct{}{}
			continue
		}
		have.addMissing(children, at, found)
	}
}

// without returns the fields without some paths.
func (f Fields) without(paths []string) Fields { return f.withoutBelow("spec", paths) }

func (f Fields) withoutBelow(path string, paths []string) Fields {
	out := make(Fields, len(f))
	for name, children := range f {
		if at := path + "." + name; !slices.Contains(paths, at) {
			out[name] = children.withoutBelow(at, paths)
		}
	}
	return out
}
