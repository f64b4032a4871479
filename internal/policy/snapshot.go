package policy

import "slices"

// Phase is the phase of admission that a call belongs to.
type Phase string

// The two phases.
const (
	PhaseMutate   Phase = "mutate"
	PhaseValidate Phase = "validate"
)

// GroupKey names a call group.
type GroupKey struct {
	Phase Phase
	Name  string
}

// Snapshot is what one replica can answer at one moment: call groups by name.
// It is immutable; a change makes a new one.
type Snapshot struct {
	groups map[GroupKey]*Group
}

// Group is the policies that one webhook call asks for.
type Group struct {
	policies []*Compiled
	index    index
}

// NewSnapshot makes a snapshot of the members of each call group, in any
// order. The argument is not kept.
func NewSnapshot(members map[GroupKey][]*Compiled) *Snapshot {
	s := &Snapshot{groups: make(map[GroupKey]*Group, len(members))}
	for key, policies := range members {
		sorted := slices.SortedStableFunc(slices.Values(policies), byName)
		s.groups[key] = &Group{policies: sorted, index: newIndex(sorted)}
	}
	return s
}

// Group finds a call group; nil means that this replica does not know it.
func (s *Snapshot) Group(key GroupKey) *Group {
	if s == nil {
		return nil
	}
	return s.groups[key]
}

// Names are the names of a group's policies, in the order of evaluation.
func (g *Group) Names() []string {
	names := make([]string, len(g.policies))
	for i, p := range g.policies {
		names[i] = p.name
	}
	return names
}
