package objectpatch

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smd "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// NewMergingConverter returns a converter for the mutations of one object, which run one after the other as
// [k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch.ApplyStructuredMergeDiff] does: it converts the patch, then
// the object, merges them, and converts the result. The object is checked by its schema once, and a merge sees only what
// the patch can change. The converter is not safe for concurrent use.
func NewMergingConverter(converter managedfields.TypeConverter) managedfields.TypeConverter {
	return &mergingConverter{TypeConverter: converter}
}

type mergingConverter struct {
	managedfields.TypeConverter
	valid runtime.Object  // the last object that its schema allows
	patch *smd.TypedValue // nil before the first conversion of a mutation
	rest  *remainder      // of the object that is merged; nil if all of it is
}

// ObjectToTyped implements managedfields.TypeConverter. Only the object to mutate is converted with options.
func (c *mergingConverter) ObjectToTyped(object runtime.Object, options ...smd.ValidationOptions) (*smd.TypedValue, error) {
	if len(options) == 0 {
		change, err := c.TypeConverter.ObjectToTyped(object)
		c.patch, c.rest = change, nil
		return change, err
	}
	patch := c.patch
	c.patch, c.rest = nil, nil
	whole, isTree := object.(*unstructured.Unstructured)
	if c.valid != object || !isTree || patch == nil {
		typed, err := c.TypeConverter.ObjectToTyped(object, options...)
		if err != nil || !isTree || patch == nil {
			return typed, err
		}
		c.valid = object
	}
	return c.divide(whole.Object, patch), nil
}

// divide returns the part of an object that a patch can change. The rest is restored in the result.
func (c *mergingConverter) divide(whole map[string]any, patch *smd.TypedValue) *smd.TypedValue {
	part := whole
	if changes, isMap := patch.AsValue().Unstructured().(map[string]any); isMap {
		part, c.rest = divide(patch.Schema(), patch.TypeRef(), whole, changes)
	}
	return smd.AsTypedUnvalidated(value.NewValueInterface(part), patch.Schema(), patch.TypeRef()) //nolint:staticcheck // the whole is valid
}

// TypedToObject implements managedfields.TypeConverter.
func (c *mergingConverter) TypedToObject(result *smd.TypedValue) (runtime.Object, error) {
	rest := c.rest
	c.rest = nil
	object, err := c.TypeConverter.TypedToObject(result)
	if err != nil {
		return nil, err
	}
	if merged, ok := object.(*unstructured.Unstructured); ok && rest != nil {
		rest.restore(merged.Object)
	}
	c.valid = object
	return object, nil
}
