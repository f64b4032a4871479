package uncounted

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

var errTooLarge = errors.New("the value of a variable is too large to evaluate without counting costs")

// variableValues is the value of the CEL variable "variables". A variable is evaluated
// when the first policy reads it.
type variableValues struct{ evaluation *Evaluation }

// Find implements traits.Mapper.
func (v *variableValues) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	e := v.evaluation
	at := slices.Index(e.plan.names, string(name))
	if at < 0 {
		return nil, false
	}
	value := e.variable(e.plan.variables[at])
	if IsUnfinished(value) {
		panic(value)
	}
	if err, ok := value.(*types.Err); ok {
		return types.WrapErr(&variableError{name: string(name), err: err}), true
	}
	return value, true
}

// limited returns an error for a value that is larger than the bounds of costs permit. Nothing may ignore it, because
// what reads the value can cost more than its bound. The extent of a constant is known, that of others is nil.
func (e *Evaluation) limited(value ref.Val, known *extent) ref.Val {
	if types.IsUnknownOrError(value) {
		return value
	}
	if known == nil {
		size := measure(value)
		known = &size
	}
	if !known.fits(e.limit) {
		return types.WrapErr(&unfinishedError{errTooLarge})
	}
	if list, ok := value.(traits.Lister); ok {
		return flat(list)
	}
	return value
}

// measure returns the extent of a value. Of an object of the request it returns only the weight, because the class of
// the request bounds the rest.
func measure(value ref.Val) extent {
	size := extent{weight: 1}
	switch v := value.(type) {
	case types.String:
		return measureText(string(v))
	case types.Bytes:
		return textOf(float64(len(v)))
	case types.Double:
		size.weight = doubleWeight
	case *types.Optional:
		if v.HasValue() {
			return measure(v.GetValue())
		}
	case apiservercel.URL:
		return measureURL(v.URL)
	case *jsonObject:
		size.weight = v.weightOnce()
	case traits.Mapper:
		return measureMap(v)
	case traits.Lister:
		return measureList(v)
	}
	return size
}

// measureText returns an infinite size for a text that is no UTF-8, because functions that replace parts of it make it
// longer.
func measureText(text string) extent {
	if !utf8.ValidString(text) {
		return unlimited()
	}
	return textOf(float64(len(text)))
}

func measureURL(u *url.URL) extent {
	parts := len(u.Scheme) + len(u.Host) + max(len(u.Path), len(u.RawPath)) + len(u.RawQuery)
	return urlOf(float64(strings.Count(u.RawQuery, "&")+1), float64(parts))
}

func measureMap(m traits.Mapper) extent {
	count, ok := m.Size().(types.Int)
	if !ok {
		return unlimited()
	}
	size := extent{elements: float64(count), weight: 1}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		size = size.including(measure(key)).including(measure(m.Get(key)))
	}
	return size
}

func measureList(list traits.Lister) extent {
	if values, ok := elementsOf(list); ok {
		size := extent{elements: float64(len(values)), weight: 1}
		for _, value := range values {
			size = size.including(measure(value))
		}
		return size
	}
	count, ok := list.Size().(types.Int)
	if !ok {
		return unlimited()
	}
	size := extent{elements: float64(count), weight: 1}
	for it := list.Iterator(); it.HasNext() == types.True; {
		size = size.including(measure(it.Next()))
	}
	return size
}

// Get implements traits.Indexer.
func (v *variableValues) Get(key ref.Val) ref.Val {
	if value, ok := v.Find(key); ok {
		return value
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (v *variableValues) Contains(key ref.Val) ref.Val {
	value, ok := v.Find(key)
	if ok && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(ok)
}

// The other operations of a value end the evaluation with an error.

// Iterator implements traits.Iterable.
func (v *variableValues) Iterator() traits.Iterator {
	return types.NewDynamicList(types.DefaultTypeAdapter, []any{}).Iterator()
}

// Size implements traits.Sizer.
func (v *variableValues) Size() ref.Val { return types.NoSuchOverloadErr() }

// ConvertToNative implements ref.Val.
func (v *variableValues) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("variables cannot be converted")
}

// ConvertToType implements ref.Val.
func (v *variableValues) ConvertToType(ref.Type) ref.Val { return types.NoSuchOverloadErr() }

// Equal implements ref.Val.
func (v *variableValues) Equal(ref.Val) ref.Val { return types.NoSuchOverloadErr() }

// Type implements ref.Val.
func (v *variableValues) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (v *variableValues) Value() any { return v }
