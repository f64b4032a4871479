package uncounted

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
)

// jsonAdapter converts Go values for the expressions of a batch, those of JSON trees
// first.
type jsonAdapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a jsonAdapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case *jsonObject:
		return v
	case types.String, types.Bool, types.Int:
		return value.(ref.Val) // without an allocation
	case string:
		return types.String(v)
	case bool:
		return types.Bool(v)
	case int64:
		return types.Int(v)
	case float64:
		return types.Double(v)
	case map[string]any:
		return a.object(v)
	case []any:
		return a.list(v)
	}
	return a.Adapter.NativeToValue(value)
}

func (a jsonAdapter) object(fields map[string]any) *jsonObject {
	return &jsonObject{Mapper: types.NewStringInterfaceMap(a, fields), adapter: a, fields: fields}
}

func (a jsonAdapter) list(elements []any) traits.Lister {
	values := make([]ref.Val, len(elements))
	for i, e := range elements {
		values[i] = a.NativeToValue(e)
	}
	return types.NewRefValList(a, values)
}

// flat returns a list that has its elements itself: a concatenation searches its parts for
// each of them.
func flat(list traits.Lister) traits.Lister {
	size, _ := list.Size().(types.Int)
	if _, ok := elementsOf(list); ok || size == 0 {
		return list
	}
	values := make([]ref.Val, 0, size)
	for it := list.Iterator(); it.HasNext() == types.True; {
		values = append(values, it.Next())
	}
	return listOf(values)
}

// valueList is the type of lists that have their elements themselves, as values of CEL.
var valueList = reflect.TypeOf(listOf(nil)) //nolint:gochecknoglobals // never changed

// elementsOf returns the elements of a list that has them itself. Any other list has to make them, and some lists, such
// as concatenations, would make all of them for Value.
func elementsOf(list traits.Lister) ([]ref.Val, bool) {
	if reflect.TypeOf(list) != valueList {
		return nil, false
	}
	values, ok := list.Value().([]ref.Val)
	return values, ok
}

func listOf(values []ref.Val) traits.Lister {
	return types.NewRefValList(jsonAdapter{types.DefaultTypeAdapter}, values)
}

// jsonObject is a JSON object as a value of CEL. Unlike the Mapper of CEL, it converts an
// object or a list in it once for all expressions that read it. It is not safe for
// concurrent use.
type jsonObject struct {
	traits.Mapper
	adapter jsonAdapter
	fields  map[string]any
	nested  map[string]ref.Val
	weight  float64 // zero before it is read
}

// Find implements traits.Mapper.
func (o *jsonObject) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	value, ok := o.fields[string(name)]
	if !ok {
		return nil, false
	}
	switch value.(type) {
	case map[string]any, []any:
		return o.convertOnce(string(name), value), true
	}
	return o.adapter.NativeToValue(value), true
}

func (o *jsonObject) convertOnce(name string, value any) ref.Val {
	if v := o.nested[name]; v != nil {
		return v
	}
	if o.nested == nil {
		o.nested = map[string]ref.Val{}
	}
	v := o.adapter.NativeToValue(value)
	o.nested[name] = v
	return v
}

func (o *jsonObject) weightOnce() float64 {
	if o.weight == 0 {
		o.weight = extentOf(o.fields).weight
	}
	return o.weight
}

// Get implements traits.Indexer.
func (o *jsonObject) Get(key ref.Val) ref.Val {
	if v, ok := o.Find(key); ok {
		return v
	}
	return types.ValOrErr(nil, "no such key: %v", key)
}

// Contains implements traits.Container.
func (o *jsonObject) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if ok {
		_, ok = o.fields[string(name)]
	}
	return types.Bool(ok)
}

// IsZeroValue implements traits.Zeroer.
func (o *jsonObject) IsZeroValue() bool { return len(o.fields) == 0 }

// Fold implements traits.Foldable.
func (o *jsonObject) Fold(f traits.Folder) {
	for name, value := range o.fields {
		if !f.FoldEntry(name, value) {
			return
		}
	}
}

// Object returns an object of a request as expressions read it, nil if there is none. It is not safe for concurrent
// use.
func Object(o *admission.LazyObject) any {
	if fields, ok := tree(o).(map[string]any); ok {
		return jsonAdapter{types.DefaultTypeAdapter}.object(fields)
	}
	return nil
}

// tree returns the JSON tree of an object of a request, nil if there is none.
func tree(o *admission.LazyObject) any {
	if u, ok := o.Object().(*unstructured.Unstructured); ok {
		return u.Object
	}
	return nil
}
