package policy

import "slices"

// Group is the policies that one webhook calls. It is immutable.
type Group struct {
	policies []*Compiled
	index    index
}

// NewGroup returns a group of policies, which may be in any order. It does not
// keep the argument.
func NewGroup(policies []*Compiled) *Group {
	sorted := slices.SortedStableFunc(slices.Values(policies), byName)
	return &Group{policies: sorted, index: newIndex(sorted)}
}

// Names are the names of the policies, in the order of evaluation.
func (g *Group) Names() []string {
	names := make([]string, len(g.policies))
	for i, p := range g.policies {
		names[i] = p.name
	}
	return names
}
