// Package shape describes the values that API servers send in the fields of built-in kinds, so
// that expressions for them need no checks of types.
package shape

import (
	"encoding/json"
	"reflect"
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
	Any Kind = iota
	Map
	List
	String
	Int
	Bool
	Number // with a fraction or without
	IntOrString
	Quantity
)

// Shape is what is known about a value: it has one of some Go types. The zero value knows
// nothing.
type Shape struct {
	types []reflect.Type
}

// Of returns the shape of objects that have one of some built-in kinds. It knows nothing of
// objects of other kinds.
func Of(kinds ...schema.GroupVersionKind) Shape {
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

// Kinds returns the shape of values of a kind that is no map or list.
func Kinds(k Kind) Shape {
	switch k {
	case String:
		return Type[string]()
	case Int:
		return Type[int64]()
	case Bool:
		return Type[bool]()
	case Number:
		return Type[float64]()
	}
	return Shape{}
}

// ListOf returns the shape of lists of elements.
func ListOf(element Shape) Shape {
	s := Shape{}
	for _, t := range element.types {
		s.types = append(s.types, reflect.SliceOf(t))
	}
	if len(s.types) == 0 {
		s.types = []reflect.Type{reflect.TypeFor[[]any]()}
	}
	return s
}

// Type returns the shape of values of a Go type.
func Type[T any]() Shape { return Shape{types: []reflect.Type{reflect.TypeFor[T]()}} }

// Kind returns the kind that the values of all types have, or Any.
func (s Shape) Kind() Kind {
	kind := Any
	for i, t := range s.types {
		k := kindOf(t)
		if i > 0 && k != kind {
			return Any
		}
		kind = k
	}
	return kind
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
	return s.Kind() == Map
}

// Field returns the shape of a member of a map. It knows nothing of fields that no type
// has.
func (s Shape) Field(name string) Shape {
	found := Shape{}
	for _, t := range s.types {
		switch f := field(t, name); {
		case kindOf(t) != Map:
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
		if kindOf(t) != List {
			return Shape{}
		}
		found.types = append(found.types, t.Elem())
	}
	return found
}

func kindOf(t reflect.Type) Kind {
	if t.Kind() == reflect.Pointer {
		return kindOf(t.Elem())
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return Quantity
	case reflect.TypeFor[intstr.IntOrString]():
		return IntOrString
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.Duration]():
		return String
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return Any
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return Map
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return String
		}
		return List
	case reflect.String:
		return String
	case reflect.Bool:
		return Bool
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return Int
	case reflect.Float32, reflect.Float64:
		return Number
	}
	return Any
}

// field returns the type of a member, nil if there is none.
func field(t reflect.Type, name string) reflect.Type {
	switch {
	case t.Kind() == reflect.Pointer:
		return field(t.Elem(), name)
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() != reflect.Struct:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type
		}
		if tag == "" && (f.Anonymous || strings.Contains(options, "inline")) {
			if found := field(f.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}
