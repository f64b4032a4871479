package lookups

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Bounds of the keys and of the value of one object, and of the keys of a request.
const (
	MaxKeys     = 1000
	MaxKey      = 1 << 10  // bytes of one key
	MaxKeyBytes = 64 << 10 // bytes of all keys
	MaxValue    = 1 << 10  // bytes of the value as JSON
	maxDepth    = 16       // of the value
)

// KeysOf returns the keys in a list, sorted and each once, or an error if the list is no list of strings or is too large.
func KeysOf(value ref.Val) ([]string, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("the result is no list but a value of type %s: write one key as [key]", value.Type().TypeName())
	}
	if size, ok := list.Size().(types.Int); !ok || size > MaxKeys {
		return nil, fmt.Errorf("the list has more than %d keys", MaxKeys)
	}
	var keys []string
	bytes := 0
	for it := list.Iterator(); it.HasNext() == types.True; {
		element := it.Next()
		key, ok := element.(types.String)
		switch {
		case !ok:
			return nil, fmt.Errorf("a key is no string but a value of type %s", element.Type().TypeName())
		case len(key) > MaxKey:
			return nil, fmt.Errorf("a key has %d bytes, more than %d", len(key), MaxKey)
		}
		if bytes += len(key); bytes > MaxKeyBytes {
			return nil, fmt.Errorf("the keys have more than %d bytes together", MaxKeyBytes)
		}
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

var errLargeValue = fmt.Errorf("the value has more than %d bytes as JSON", MaxValue)

// encode returns a value as JSON.
func encode(value ref.Val) (string, error) {
	left := MaxValue
	tree, err := treeOf(value, maxDepth, &left)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(tree)
	switch {
	case err != nil:
		return "", fmt.Errorf("encoding: %w", err)
	case len(text) > MaxValue:
		return "", errLargeValue
	}
	return string(text), nil
}

// treeOf converts a value for the encoder. It ends at the first part that exceeds the bytes that are left, so that a
// value as large as the object costs little.
func treeOf(value ref.Val, depth int, left *int) (any, error) {
	if *left--; *left < 0 {
		return nil, errLargeValue
	}
	if depth == 0 {
		return nil, fmt.Errorf("the value has more than %d levels", maxDepth)
	}
	switch v := value.(type) {
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Double:
		return numberOf(float64(v))
	case types.Null:
		return nil, nil
	case types.String:
		if *left -= len(v); *left < 0 {
			return nil, errLargeValue
		}
		return string(v), nil
	case traits.Mapper:
		return mapOf(v, depth, left)
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			element, err := treeOf(it.Next(), depth-1, left)
			if err != nil {
				return nil, err
			}
			out = append(out, element)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %s has no JSON: convert it, as with string()", value.Type().TypeName())
}

func mapOf(m traits.Mapper, depth int, left *int) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, errors.New("a map of the value has keys that are no strings")
		}
		if *left -= len(name); *left < 0 {
			return nil, errLargeValue
		}
		element, err := treeOf(m.Get(key), depth-1, left)
		if err != nil {
			return nil, err
		}
		out[string(name)] = element
	}
	return out, nil
}

// numberOf writes a number that is not an integer in CEL so that it is decoded as none.
func numberOf(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errors.New("the value contains a number that JSON does not have")
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.Number(text), nil
}

// Value is an element of a result: what is known of one object.
type Value struct {
	Namespace, Name string
	JSON            string // empty for the default
}

// Decode returns the value as CEL reads it: the default is a map of the namespace and the name.
func (v Value) Decode() (any, error) {
	if v.JSON == "" {
		return map[string]string{"namespace": v.Namespace, "name": v.Name}, nil
	}
	var out any
	if err := utiljson.Unmarshal([]byte(v.JSON), &out); err != nil {
		return nil, fmt.Errorf("decoding the value of %s/%s: %w", v.Namespace, v.Name, err)
	}
	return out, nil
}
