package unstructuredjson

import (
	"slices"
	"strings"
)

// Selection names the parts of an object to decode. The zero value names none. A Selection is immutable.
//
// A value of another type is decoded whole, although the selection names members or elements of it: a reader of the tree
// finds the value, and the error about it, that the whole tree has.
type Selection struct {
	rest     bool             // every member that members does not name
	members  []selectedMember // sorted by name: each policy has a Selection, and maps take four times the memory
	elements *Selection       // of a list, instead of members; a zero value empties objects
}

// selectedMember is a member with what is selected of it. A zero value leaves the member out.
type selectedMember struct {
	name string
	of   Selection
}

// Everything selects the whole object.
func Everything() Selection { return Selection{rest: true} }

// Path selects one value, given by the names of the members that lead to it.
func Path(names ...string) Selection { return Everything().At(names...) }

// At returns the selection of a value for the object that contains it, given by the names of the members that lead to it.
func (s Selection) At(names ...string) Selection {
	for _, name := range slices.Backward(names) {
		s = Selection{members: []selectedMember{{name, s}}}
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
	return Selection{rest: true, members: []selectedMember{{name, inner}}}
}

// IsZero reports whether the selection names nothing.
func (s Selection) IsZero() bool { return !s.rest && len(s.members) == 0 && s.elements == nil }

// Union selects what any of two selections names.
func (s Selection) Union(other Selection) Selection {
	switch {
	case s.Covers(other):
		return s
	case other.Covers(s):
		return other
	case s.elements != nil && other.elements != nil:
		return Elements(s.elements.Union(*other.elements))
	case s.elements != nil || other.elements != nil:
		return Everything()
	}
	out := Selection{rest: s.rest || other.rest, members: make([]selectedMember, 0, len(s.members)+len(other.members))}
	for _, m := range s.members {
		out.members = append(out.members, selectedMember{m.name, m.of.Union(other.Member(m.name))})
	}
	for _, m := range other.members {
		if _, ok := s.find(m.name); !ok {
			out.members = append(out.members, selectedMember{m.name, m.of.Union(s.Member(m.name))})
		}
	}
	slices.SortFunc(out.members, func(a, b selectedMember) int { return strings.Compare(a.name, b.name) })
	return out
}

// Covers reports whether s selects everything that other does.
func (s Selection) Covers(other Selection) bool {
	switch {
	case other.IsZero() || s.rest && len(s.members) == 0:
		return true
	case s.elements != nil || other.elements != nil:
		return s.elements != nil && other.elements != nil && s.elements.Covers(*other.elements)
	case other.rest && !s.rest:
		return false
	}
	for _, m := range other.members {
		if !s.Member(m.name).Covers(m.of) {
			return false
		}
	}
	for _, m := range s.members {
		if !m.of.Covers(other.Member(m.name)) {
			return false
		}
	}
	return true
}

// Touches reports whether s selects a value or a part of it, given by the names of the members that lead to it.
func (s Selection) Touches(names ...string) bool {
	for _, name := range names {
		if s.elements != nil {
			return true // an object is decoded whole
		}
		s = s.Member(name)
	}
	return !s.IsZero()
}

// Member returns the selection of a member.
func (s Selection) Member(name string) Selection {
	if i, ok := s.find(name); ok {
		return s.members[i].of
	}
	return Selection{rest: s.rest}
}

func (s Selection) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.members, name, func(m selectedMember, name string) int { return strings.Compare(m.name, name) })
}
