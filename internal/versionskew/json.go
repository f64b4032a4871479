package versionskew

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// UnknownInJSON returns the paths of the fields that the spec of an object in JSON has and that
// are not among the fields. Decoding drops them. The result is sorted, and names no field below
// an unknown one.
func (f Fields) UnknownInJSON(object []byte) ([]string, error) {
	found := map[string]struct{}{}
	// Ostiary needs no other part of the object than its spec to decide requests.
	err := readMembers(jsontext.NewDecoder(bytes.NewReader(object)), func(d *jsontext.Decoder, name string) error {
		if name == "spec" && d.PeekKind() == '{' {
			return f.readUnknownMembers(d, name, found)
		}
		return d.SkipValue()
	})
	if err != nil {
		return nil, fmt.Errorf("reading the fields of an object: %w", err)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func (f Fields) readUnknown(d *jsontext.Decoder, path string, found map[string]struct{}) error {
	switch d.PeekKind() {
	case '[':
		return readElements(d, func(d *jsontext.Decoder) error { return f.readUnknown(d, path, found) })
	case '{':
		if len(f) > 0 { // otherwise a map, whose keys are no fields
			return f.readUnknownMembers(d, path, found)
		}
	}
	return d.SkipValue()
}

func (f Fields) readUnknownMembers(d *jsontext.Decoder, path string, found map[string]struct{}) error {
	return readMembers(d, func(d *jsontext.Decoder, name string) error {
		children, known := f[name]
		if !known {
			found[path+"."+name] = struct{}{}
			return d.SkipValue()
		}
		return children.readUnknown(d, path+"."+name, found)
	})
}

// readMembers reads an object. read has to read the value of each member.
func readMembers(d *jsontext.Decoder, read func(d *jsontext.Decoder, name string) error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := read(d, name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// readElements reads an array. read has to read each element.
func readElements(d *jsontext.Decoder, read func(d *jsontext.Decoder) error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if err := read(d); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}
