package objectpatch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// maxTrials is the maximum of conversions to find the field that does not fit.
const maxTrials = 500

// withPath adds the path of the first value that does not fit its field, and what the field takes. Errors about
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
	found := s.find(misfit{value: content, within: func(v any) map[string]any {
		m, _ := v.(map[string]any)
		return m
	}})
	if found.path == "" {
		return unfit
	}
	what := describeValue(found.value)
	if takes := s.takes(found.within); len(takes) > 0 && !slices.Contains(takes, what) {
		return fmt.Errorf("the value of %s, %s, does not fit its field, which takes %s",
			found.path, what, strings.Join(takes, " or "))
	}
	return fmt.Errorf("the value of %s, %s, does not fit its field: %w", found.path, what, unfit)
}

// unfitSearch finds a value by converting objects that contain only one of the values.
type unfitSearch struct {
	trials int
	fits   func(content map[string]any) bool
}

// misfit is a value with its path. within returns an object with another value in its place.
type misfit struct {
	path   string
	value  any
	within func(any) map[string]any
}

// find returns the first part of a value that does not fit.
func (s *unfitSearch) find(m misfit) misfit {
	for at, part := range parts(m.value) {
		if s.trials--; s.trials < 0 {
			return m
		}
		alone := func(v any) map[string]any { return m.within(at.around(v)) }
		if !s.fits(alone(part)) {
			return s.find(misfit{path: at.after(m.path), value: part, within: alone})
		}
	}
	return m
}

// takes returns the types of JSON of which a value fits a field. The samples of texts are an empty one, a quantity
// and a time.
func (s *unfitSearch) takes(within func(any) map[string]any) (out []string) {
	for _, sample := range []any{true, int64(0), "", "0", "2006-01-02T15:04:05Z", []any{}, map[string]any{}} {
		if what := describeValue(sample); !slices.Contains(out, what) && s.fits(within(sample)) {
			out = append(out, what)
		}
	}
	return out
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
