package objectpatch

import (
	"maps"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// remainder holds the values that a merge leaves as they are, because the patch does not name them. A merge would copy and
// check each of them, and most of an object is of that kind.
type remainder struct {
	values map[string]any
	below  map[string]*remainder // in maps that the patch names
}

// divide returns an object without the values that a merge with a patch leaves as they are, and these values. Restoring
// them in the result of the merge gives the result for the whole object, if that is valid by its schema. Nothing is
// changed, and both parts share values with the object.
//
// The patch names members of maps only: a list, an atomic map, and a value that has another type in the patch belong to
// the merge as a whole, and so does what the patch empties.
func divide(types *schema.Schema, of schema.TypeRef, object, patch map[string]any) (map[string]any, *remainder) {
	resolved, ok := types.Resolve(of)
	if !ok || resolved.Map == nil || resolved.Map.ElementRelationship == schema.Atomic || len(patch) == 0 {
		return object, nil
	}
	part, rest := make(map[string]any, len(patch)), &remainder{}
	for name, value := range object {
		change, named := patch[name]
		if !named {
			rest.add(name, value)
			continue
		}
		own, isMap := value.(map[string]any)
		changed, isChange := change.(map[string]any)
		if !isMap || !isChange {
			part[name] = value
			continue
		}
		inner, left := divide(types, member(resolved.Map, name), own, changed)
		if part[name] = inner; left != nil {
			rest.addBelow(name, left)
		}
	}
	if rest.values == nil && rest.below == nil {
		return object, nil
	}
	return part, rest
}

// member returns the type of a member of a map.
func member(of *schema.Map, name string) schema.TypeRef {
	if field, ok := of.FindField(name); ok {
		return field.Type
	}
	return of.ElementType
}

func (r *remainder) add(name string, value any) {
	if r.values == nil {
		r.values = map[string]any{}
	}
	r.values[name] = value
}

func (r *remainder) addBelow(name string, below *remainder) {
	if r.below == nil {
		r.below = map[string]*remainder{}
	}
	r.below[name] = below
}

// restore adds the values to the result of a merge, whose maps are new.
func (r *remainder) restore(merged map[string]any) {
	maps.Copy(merged, r.values)
	for name, below := range r.below {
		inner, ok := merged[name].(map[string]any)
		if !ok { // all that the patch has there are lists with no valid element
			inner = map[string]any{}
			merged[name] = inner
		}
		below.restore(inner)
	}
}
