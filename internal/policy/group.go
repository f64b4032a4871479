package policy

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Group holds the policies of one webhook. It is immutable.
type Group struct {
	policies []*Compiled
	index    index
	// templates are for a group that evaluates pod templates; nil for another one.
	templates map[metav1.GroupVersionResource][]templateBatch
}

// NewGroup returns a group of policies in any order. It does not keep the argument.
func NewGroup(policies []*Compiled) *Group {
	sorted := slices.SortedStableFunc(slices.Values(policies), byName)
	return &Group{policies: sorted, index: newIndex(sorted)}
}

// MadeOf reports whether the group was made of these policies, in any order. A nil group
// was made of none.
func (g *Group) MadeOf(policies []*Compiled) bool {
	return g != nil && slices.Equal(g.policies, slices.SortedStableFunc(slices.Values(policies), byName))
}

// Names returns the names of the policies, in the order of evaluation.
func (g *Group) Names() []string {
	names := make([]string, len(g.policies))
	for i, p := range g.policies {
		names[i] = p.name
	}
	return names
}
