package unstructuredjson

import "slices"

// Selection names the parts of an object to decode. The zero value names none. A Selection is immutable.
//
// A value of another type is decoded whole, although the selection names members or elements of it: a reader of the tree
// finds the value, and the error about it, that the whole tree has.
type Selection struct {
	rest     bool                 // every member that members does not name
	members  map[string]Selection // a zero value leaves the member out
	elements *Selection           // of a list, instead of members; a zero value empties objects
}

// Everything selects the whole object.
func Everything() Selection { return Selection{rest: true} }

// Path selects one value, given by the names of the members that lead to it.
func Path(names ...string) Selection { return Everything().At(names...) }

// At returns the selection of a value for the object that contains it, given by the names of the members that lead to it.
func (s Selection) At(names ...string) Selection {
	for _, name := range slices.Backward(names) {
		s = Selection{members: map[string]Selection{name: s}}
	}
	return s
}

// Elements returns the selection of a list, given that of each element.
func Elements(of Selection) Selection {
	if of.rest && len(of.members) == 0 {
		return of
	}
	return Selection{elements: &of}
}

// Without selects the whole object except one value.
func Without(name string, further ...string) Selection {
	var inner Selection
	if len(further) > 0 {
		inner = Without(further[0], further[1:]...)
	}
	return Selection{rest: true, members: map[string]Selection{name: inner}}
}

// IsZero reports whether the selection names nothing.
func (s Selection) IsZero() bool { return !s.rest && len(s.members) == 0 && s.elements == nil }

// Union selects what any of two selections names.
func (s Selection) Union(other Selection) Selection {
	switch {
	case s.covers(other):
		return s
	case other.covers(s):
		return other
	case s.elements != nil && other.elements != nil:
		return Elements(s.elements.Union(*other.elements))
	case s.elements != nil || other.elements != nil:
		return Everything()
	}
	out := Selection{rest: s.rest || other.rest, members: map[string]Selection{}}
	for _, names := range []map[string]Selection{s.members, other.members} {
		for name := range names {
			out.members[name] = s.Member(name).Union(other.Member(name))
		}
	}
	return out
}

// covers reports whether s selects everything that other does.
func (s Selection) covers(other Selection) bool {
	switch {
	case other.IsZero() || s.rest && len(s.members) == 0:
		return true
	case s.elements != nil || other.elements != nil:
		return s.elements != nil && other.elements != nil && s.elements.covers(*other.elements)
	case other.rest && !s.rest:
		return false
	}
	for name, m := range other.members {
		if !s.Member(name).covers(m) {
			return false
		}
	}
	for name, m := range s.members {
		if !m.covers(other.Member(name)) {
			return false
		}
	}
	return true
}

// Member returns the selection of a member.
func (s Selection) Member(name string) Selection {
	if m, ok := s.members[name]; ok {
		return m
	}
	return Selection{rest: s.rest}
}
