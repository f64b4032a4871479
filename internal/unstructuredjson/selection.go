package unstructuredjson

// Selection names the parts of an object to decode. The zero value names none. A Selection is immutable.
//
// A part that is not an object is decoded whole, although the selection names members of it: a reader of the tree finds
// the value, and the error about it, that the whole tree has.
type Selection struct {
	rest    bool                 // every member that members does not name
	members map[string]Selection // a zero value leaves the member out
}

// Everything selects the whole object.
func Everything() Selection { return Selection{rest: true} }

// Path selects one value, given by the names of the members that lead to it.
func Path(names ...string) Selection {
	if len(names) == 0 {
		return Everything()
	}
	return Selection{members: map[string]Selection{names[0]: Path(names[1:]...)}}
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
func (s Selection) IsZero() bool { return !s.rest && len(s.members) == 0 }

// Union selects what any of two selections names.
func (s Selection) Union(other Selection) Selection {
	switch {
	case s.covers(other):
		return s
	case other.covers(s):
		return other
	}
	out := Selection{rest: s.rest || other.rest, members: map[string]Selection{}}
	for _, names := range []map[string]Selection{s.members, other.members} {
		for name := range names {
			out.members[name] = s.member(name).Union(other.member(name))
		}
	}
	return out
}

// covers reports whether s selects everything that other does.
func (s Selection) covers(other Selection) bool {
	if other.rest && !s.rest {
		return false
	}
	for name, m := range other.members {
		if !s.member(name).covers(m) {
			return false
		}
	}
	for name, m := range s.members {
		if !m.covers(other.member(name)) {
			return false
		}
	}
	return true
}

func (s Selection) member(name string) Selection {
	if m, ok := s.members[name]; ok {
		return m
	}
	return Selection{rest: s.rest}
}
