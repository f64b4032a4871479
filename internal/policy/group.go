package policy

import "slices"

// Group holds the policies of one webhook. It is immutable.
type Group struct {
	policies []*Compiled
	index    index
}

// NewGroup returns a group of policies in any order. It does not keep the argument.
func NewGroup(policies []*Compiled) *Group {
	sorted := slices.SortedStableFunc(slices.Values(policies), byName)
	return &Group{policies: sorted, index: newIndex(sorted)}
}

// Names returns the names of the policies, in the order of evaluation.
func (g *Group) Names() []string {
	names := make([]string, len(g.policies))
	for i, p := range g.policies {
		names[i] = p.name
	}
	return names
}
