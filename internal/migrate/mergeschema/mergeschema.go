// Package mergeschema knows how API servers merge the fields of built-in kinds, from the
// schemas that server-side apply uses. An apply configuration may not contain what they
// replace as a whole.
package mergeschema

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kinds "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Schema is that of a value: one of some types. The zero value knows nothing.
type Schema struct {
	types []schemaType
	root  bool // of an object
}

type schemaType struct {
	schema *schema.Schema
	ref    schema.TypeRef
}

// OfKinds returns the schema of objects that have one of some kinds. Of objects of kinds that
// are not built in, it knows the metadata only.
func OfKinds(of ...kinds.GroupVersionKind) Schema {
	s := Schema{root: true}
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for _, kind := range of {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		typed, err := converter.ObjectToTyped(object)
		if err != nil {
			return Schema{root: true}
		}
		s.types = append(s.types, schemaType{schema: typed.Schema(), ref: typed.TypeRef()})
	}
	return s
}

// IsKnown reports whether something is known about the value.
func (s Schema) IsKnown() bool { return s.root || len(s.types) > 0 }

// IsAtomic reports whether API servers replace the value as a whole.
func (s Schema) IsAtomic() bool {
	for _, t := range s.types {
		atom, _ := t.schema.Resolve(t.ref)
		if atom.Map != nil && atom.Map.ElementRelationship == schema.Atomic ||
			atom.List != nil && atom.List.ElementRelationship == schema.Atomic {
			return true
		}
	}
	return false
}

// Keys returns the fields that identify an element of a list; none if the list is atomic or
// has no maps.
func (s Schema) Keys() []string {
	for _, t := range s.types {
		if atom, _ := t.schema.Resolve(t.ref); atom.List != nil {
			return atom.List.Keys
		}
	}
	return nil
}

// Field returns the schema of a member of a map.
func (s Schema) Field(name string) Schema {
	if s.root && len(s.types) == 0 && name == "metadata" {
		s = OfKinds(corev1.SchemeGroupVersion.WithKind("Pod"))
	}
	return s.inner(func(atom schema.Atom) (schema.TypeRef, bool) {
		if atom.Map == nil {
			return schema.TypeRef{}, false
		}
		if f, ok := atom.Map.FindField(name); ok {
			return f.Type, true
		}
		return atom.Map.ElementType, isSet(atom.Map.ElementType)
	})
}

// Element returns the schema of the elements of a list.
func (s Schema) Element() Schema {
	return s.inner(func(atom schema.Atom) (schema.TypeRef, bool) {
		if atom.List == nil {
			return schema.TypeRef{}, false
		}
		return atom.List.ElementType, true
	})
}

func isSet(ref schema.TypeRef) bool { return ref.NamedType != nil || ref.Inlined != schema.Atom{} }

// inner returns the schema of a part of the value, which all types must have.
func (s Schema) inner(part func(schema.Atom) (schema.TypeRef, bool)) (found Schema) {
	for _, t := range s.types {
		atom, ok := t.schema.Resolve(t.ref)
		if !ok {
			return Schema{}
		}
		ref, ok := part(atom)
		if !ok {
			return Schema{}
		}
		found.types = append(found.types, schemaType{schema: t.schema, ref: ref})
	}
	return found
}
