package uncounted

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

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
	slot := e.plan.variables[at]
	if e.values[slot] == nil {
		e.values[slot] = e.limited(e.value(slot))
	}
	return e.values[slot], true
}

// limited returns an error for a value that is larger than the bounds of costs permit.
func (e *Evaluation) limited(value ref.Val) ref.Val {
	switch {
	case types.IsUnknownOrError(value):
		return value
	case !within(value, e.limit):
		return types.NewErr("the value of the variable is too large to evaluate without counting costs")
	}
	if list, ok := value.(traits.Lister); ok {
		return flat(list)
	}
	return value
}

// within reports whether a value is within an extent. Objects of the request are.
func within(value ref.Val, limit extent) bool {
	switch v := value.(type) {
	case types.String:
		return float64(len(v)) <= limit.text
	case types.Bytes:
		return float64(len(v)) <= limit.text
	case *types.Optional:
		return !v.HasValue() || within(v.GetValue(), limit)
	case traits.Mapper:
		if _, ok := v.Value().(map[string]any); ok {
			return true
		}
		return elementsWithin(v, v, limit)
	case traits.Lister:
		return elementsWithin(v, v, limit)
	}
	return true
}

func elementsWithin(v interface {
	traits.Sizer
	traits.Iterable
}, indexed traits.Indexer, limit extent) bool {
	if size, ok := v.Size().(types.Int); !ok || float64(size) > limit.elements {
		return false
	}
	_, isMap := v.(traits.Mapper)
	for it := v.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		if !within(next, limit) || isMap && !within(indexed.Get(next), limit) {
			return false
		}
	}
	return true
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
