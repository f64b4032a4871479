package celtext

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// Kind is what a value is in JSON.
type Kind int

// The kinds of values. Quantity is a number or a string that is a quantity.
const (
	KindAny Kind = iota
	KindMap
	KindList
	KindString
	KindInt
	KindBool
	KindNumber // with a fraction or without
	KindIntOrString
	KindQuantity
)

// Shape is what is known about a value: it has one of some Go types. The zero value knows
// nothing.
type Shape struct {
	types []reflect.Type
}

// ShapeOfKinds returns the shape of objects that have one of some built-in kinds. It knows nothing of
// objects of other kinds.
func ShapeOfKinds(kinds ...schema.GroupVersionKind) Shape {
	s := Shape{}
	for _, k := range kinds {
		object, err := scheme.Scheme.New(k)
		if err != nil {
			return Shape{}
		}
		s.types = append(s.types, reflect.TypeOf(object).Elem())
	}
	return s
}

// ShapeOfKind returns the shape of values of a kind that is no map or list.
func ShapeOfKind(k Kind) Shape {
	switch k {
	case KindString:
		return ShapeOfType[string]()
	case KindInt:
		return ShapeOfType[int64]()
	case KindBool:
		return ShapeOfType[bool]()
	case KindNumber:
		return ShapeOfType[float64]()
	}
	return Shape{}
}

// ShapeOfList returns the shape of lists of elements.
func ShapeOfList(element Shape) Shape {
	s := Shape{}
	for _, t := range element.types {
		s.types = append(s.types, reflect.SliceOf(t))
	}
	if len(s.types) == 0 {
		s.types = []reflect.Type{reflect.TypeFor[[]any]()}
	}
	return s
}

// ShapeOfType returns the shape of values of a Go type.
func ShapeOfType[T any]() Shape { return Shape{types: []reflect.Type{reflect.TypeFor[T]()}} }

// Kind returns the kind that the values of all types have, or Any.
func (s Shape) Kind() Kind {
	kind := KindAny
	for i, t := range s.types {
		k := kindOfType(t)
		if i > 0 && k != kind {
			return KindAny
		}
		kind = k
	}
	return kind
}

// IsNarrow reports whether the values are integers of at most 32 bits.
func (s Shape) IsNarrow() bool {
	isWide := func(t reflect.Type) bool {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		return t.Kind() != reflect.Int32 && t.Kind() != reflect.Uint8
	}
	return len(s.types) > 0 && !slices.ContainsFunc(s.types, isWide)
}

// IsPlainMap reports whether the values are maps whose keys authors choose, such as labels.
func (s Shape) IsPlainMap() bool {
	for _, t := range s.types {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Map {
			return false
		}
	}
	return len(s.types) > 0
}

// IsStruct reports whether the values are objects that are never null.
func (s Shape) IsStruct() bool {
	for _, t := range s.types {
		if t.Kind() != reflect.Struct {
			return false
		}
	}
	return s.Kind() == KindMap
}

// Field returns the shape of a member of a map. It knows nothing of fields that no type
// has.
func (s Shape) Field(name string) Shape {
	found := Shape{}
	for _, t := range s.types {
		switch f := fieldOfType(t, name); {
		case kindOfType(t) != KindMap:
			return Shape{}
		case f != nil:
			found.types = append(found.types, f)
		}
	}
	return found
}

// Element returns the shape of the elements of a list.
func (s Shape) Element() Shape {
	found := Shape{}
	for _, t := range s.types {
		if kindOfType(t) != KindList {
			return Shape{}
		}
		found.types = append(found.types, t.Elem())
	}
	return found
}

func kindOfType(t reflect.Type) Kind {
	if t.Kind() == reflect.Pointer {
		return kindOfType(t.Elem())
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return KindQuantity
	case reflect.TypeFor[intstr.IntOrString]():
		return KindIntOrString
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.Duration]():
		return KindString
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return KindAny
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return KindMap
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return KindString
		}
		return KindList
	case reflect.String:
		return KindString
	case reflect.Bool:
		return KindBool
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return KindInt
	case reflect.Float32, reflect.Float64:
		return KindNumber
	}
	return KindAny
}

// fieldOfType returns the type of a member, nil if there is none.
func fieldOfType(t reflect.Type, name string) reflect.Type {
	switch {
	case t.Kind() == reflect.Pointer:
		return fieldOfType(t.Elem(), name)
	case t.Kind() == reflect.Map:
		return t.Elem()
	}
	if f, ok := structField(t, name); ok {
		return f.Type
	}
	return nil
}

// sendsNull reports whether a field is a list that is null in JSON if it is empty, in one of the types.
func (s Shape) sendsNull(name string) bool {
	return slices.ContainsFunc(s.types, func(t reflect.Type) bool {
		if t.Kind() != reflect.Struct {
			return false
		}
		f, found := structField(t, name)
		return found && f.Type.Kind() == reflect.Slice && !strings.Contains(f.Tag.Get("json"), "omit")
	})
}

// structField returns the field with a name in JSON.
func structField(t reflect.Type, name string) (reflect.StructField, bool) {
	if t.Kind() == reflect.Pointer {
		return structField(t.Elem(), name)
	}
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f, true
		}
		if tag == "" && (f.Anonymous || strings.Contains(options, "inline")) {
			if found, ok := structField(f.Type, name); ok {
				return found, true
			}
		}
	}
	return reflect.StructField{}, false
}

// MergesList reports whether a strategic merge patch merges the elements of a list in a
// member, instead of replacing the list, and the field that identifies an element. It
// replaces the lists of kinds that are not built in.
func (s Shape) MergesList(name string) (key string, merges bool) {
	for _, t := range s.types {
		f, _ := structField(t, name)
		if strings.Contains(f.Tag.Get("patchStrategy"), "merge") {
			return f.Tag.Get("patchMergeKey"), true
		}
	}
	return "", false
}
