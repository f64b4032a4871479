package policy

import "slices"

// Snapshot is what one replica can answer at one moment: call groups by name.
// It is immutable; a change makes a new one.
type Snapshot struct {
	groups map[string]*Group
}

// Group is the policies that one webhook call asks for.
type Group struct {
	policies []*Compiled
	index    index
}

// NewSnapshot makes a snapshot of the members of each call group, in any
// order. The argument is not kept.
func NewSnapshot(members map[string][]*Compiled) *Snapshot {
	s := &Snapshot{groups: make(map[string]*Group, len(members))}
	for name, policies := range members {
		sorted := slices.SortedStableFunc(slices.Values(policies), byName)
		s.groups[name] = &Group{policies: sorted, index: newIndex(sorted)}
	}
	return s
}

// Group finds a call group by name; nil means that this replica does not know it.
func (s *Snapshot) Group(name string) *Group {
	if s == nil {
		return nil
	}
	return s.groups[name]
}

// Names are the names of a group's policies, in the order of evaluation.
func (g *Group) Names() []string {
	names := make([]string, len(g.policies))
	for i, p := range g.policies {
		names[i] = p.name
	}
	return names
}
