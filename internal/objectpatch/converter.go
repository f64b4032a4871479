package objectpatch

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smd "sigs.k8s.io/structured-merge-diff/v6/typed"
)

// NewCachingConverter returns a converter for the mutations of one object, which run one after the other: the
// result of a conversion is used again. It is not safe for concurrent use.
func NewCachingConverter(converter managedfields.TypeConverter) managedfields.TypeConverter {
	return &cachingConverter{TypeConverter: converter}
}

// cachingConverter is the type converter of one request. Mutations run one after the other on
// one object, so the result of a conversion is used again.
type cachingConverter struct {
	managedfields.TypeConverter
	current, made typedObject
}

type typedObject struct {
	object runtime.Object
	typed  *smd.TypedValue
}

// ObjectToTyped implements managedfields.TypeConverter. Only the object to mutate is
// converted with options.
func (c *cachingConverter) ObjectToTyped(object runtime.Object, options ...smd.ValidationOptions) (*smd.TypedValue, error) {
	if c.made.object == object {
		c.current = c.made
	}
	if c.current.object == object {
		return c.current.typed, nil
	}
	value, err := c.TypeConverter.ObjectToTyped(object, options...)
	if err == nil && len(options) > 0 {
		c.current = typedObject{object, value}
	}
	return value, err
}

// TypedToObject implements managedfields.TypeConverter.
func (c *cachingConverter) TypedToObject(value *smd.TypedValue) (runtime.Object, error) {
	object, err := c.TypeConverter.TypedToObject(value)
	if err == nil {
		c.made = typedObject{object, value}
	}
	return object, err
}
