package objectpatch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// maxTrials is the maximum of conversions to find the field that does not fit.
const maxTrials = 500

// withPath adds the path of the first value that does not fit its field. Errors about
// unknown fields contain theirs.
func withPath(kind schema.GroupVersionKind, content map[string]any, objects admission.ObjectInterfaces, unfit error) error {
	if _, ok := runtime.AsStrictDecodingError(unfit); ok {
		return unfit
	}
	s := unfitSearch{trials: maxTrials, fits: func(content map[string]any) bool {
		_, err := typedOf(kind, content, objects)
		_, unknownFields := runtime.AsStrictDecodingError(err)
		return err == nil || unknownFields
	}}
	path, value := s.find("", content, func(v any) map[string]any {
		m, _ := v.(map[string]any)
		return m
	})
	if path == "" {
		return unfit
	}
	return fmt.Errorf("the value of %s, %s, does not fit its field: %w", path, describeValue(value), unfit)
}

// unfitSearch finds a value by converting objects that contain only one of the values.
type unfitSearch struct {
	trials int
	fits   func(content map[string]any) bool
}

// find returns the first part of a value that does not fit. within returns an object with
// the value in its place.
func (s *unfitSearch) find(path string, value any, within func(any) map[string]any) (string, any) {
	for at, part := range parts(value) {
		if s.trials--; s.trials < 0 {
			return path, value
		}
		alone := func(v any) map[string]any { return within(at.around(v)) }
		if !s.fits(alone(part)) {
			return s.find(at.after(path), part, alone)
		}
	}
	return path, value
}

// pathStep is a field of an object, or an index of a list.
type pathStep struct {
	field string
	index int // -1 for a field
}

func (s pathStep) after(path string) string {
	switch {
	case s.index >= 0:
		return path + "[" + strconv.Itoa(s.index) + "]"
	case path == "":
		return s.field
	}
	return path + "." + s.field
}

// around returns an object or a list with one value.
func (s pathStep) around(v any) any {
	if s.index >= 0 {
		return []any{v}
	}
	return map[string]any{s.field: v}
}

// parts yields the fields of an object, or the elements of a list.
func parts(value any) func(func(pathStep, any) bool) {
	return func(yield func(pathStep, any) bool) {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				if !yield(pathStep{name, -1}, value[name]) {
					return
				}
			}
		case []any:
			for i, v := range value {
				if !yield(pathStep{"", i}, v) {
					return
				}
			}
		}
	}
}

// describeValue returns the type of a JSON value. The value itself can be secret.
func describeValue(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "null"
}
