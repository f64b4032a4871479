package policy

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smd "sigs.k8s.io/structured-merge-diff/v6/typed"
)

// typeCache is the type converter of one request. Mutations run one after the other on
// one object, so the result of a conversion is used again.
type typeCache struct {
	managedfields.TypeConverter
	current, made typedObject
}

type typedObject struct {
	object runtime.Object
	typed  *smd.TypedValue
}

// ObjectToTyped implements managedfields.TypeConverter. Only the object to mutate is
// converted with options.
func (c *typeCache) ObjectToTyped(object runtime.Object, options ...smd.ValidationOptions) (*smd.TypedValue, error) {
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
func (c *typeCache) TypedToObject(value *smd.TypedValue) (runtime.Object, error) {
	object, err := c.TypeConverter.TypedToObject(value)
	if err == nil {
		c.made = typedObject{object, value}
	}
	return object, err
}

// converter finds the schema of the object's kind, once for a request, because the search
// for an unknown one takes time.
func (on *subject) converter(converters TypeConverters) managedfields.TypeConverter {
	if !on.converterKnown {
		on.converterKnown = true
		if found := converters.GetTypeConverter(on.kindOfObject()); found != nil {
			on.typeConverter = &typeCache{TypeConverter: found}
		}
	}
	return on.typeConverter
}
