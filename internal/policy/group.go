package policy

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
)

// Group holds the policies of one webhook, which do not change. It is safe for concurrent use.
type Group struct {
	policies  []*Compiled
	index     index
	templates bool // it evaluates pod templates instead of the objects of requests
}

// NewGroup returns a group of policies in any order. It does not keep the argument.
func NewGroup(policies []*Compiled) *Group {
	sorted := slices.SortedStableFunc(slices.Values(policies), byName)
	return &Group{policies: sorted, index: newIndex(sorted)}
}

// NewTemplateGroup returns a group of policies, in any order, that evaluates the pod
// templates of workloads. It does not keep the argument.
func NewTemplateGroup(policies []*Compiled) *Group {
	sorted := slices.SortedStableFunc(slices.Values(policies), byName)
	return &Group{policies: sorted, index: newTemplateIndex(sorted), templates: true}
}

// Without returns a group without some of the policies.
func (g *Group) Without(left func(name string) bool) *Group {
	rest := slices.DeleteFunc(slices.Clone(g.policies), func(p *Compiled) bool { return left(p.name) })
	if g.templates {
		return NewTemplateGroup(rest)
	}
	return NewGroup(rest)
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

// index finds the targets of a resource, so that a call does not examine the others.
type index struct {
	byResource map[string]*candidates // by resource name
	any        *candidates            // with wildcards, for resources that no policy names
}

func newIndex(policies []*Compiled) index {
	byResource := map[string][]*Compiled{}
	var wildcards []*Compiled
	for _, p := range policies {
		names, wildcard := p.rules.Resources()
		if wildcard {
			wildcards = append(wildcards, p)
			continue
		}
		for _, name := range names {
			byResource[name] = append(byResource[name], p)
		}
	}
	x := index{byResource: make(map[string]*candidates, len(byResource)), any: objectCandidates(wildcards)}
	for name, exact := range byResource {
		x.byResource[name] = objectCandidates(merge(exact, wildcards))
	}
	return x
}

// objectCandidates returns the targets of the objects of policies, sorted by name.
func objectCandidates(policies []*Compiled) *candidates {
	return &candidates{targets: objectTargets(newBatches(policies))}
}

// newTemplateIndex returns the targets of the pod templates of policies, sorted by name.
func newTemplateIndex(policies []*Compiled) index {
	byKey := map[string][]*Compiled{}
	for _, p := range policies {
		if p.templates != nil {
			byKey[p.templates.key] = append(byKey[p.templates.key], p)
		}
	}
	x := index{byResource: map[string]*candidates{}, any: &candidates{}}
	var all []*batch
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		for _, b := range divideByRules(byKey[key]) { // equal keys contain equal rules: there is one
			all = append(all, b)
			common := b.policies[0].templates
			for _, k := range common.kinds {
				at := &templateTarget{
					resource:  k.GroupVersionResource(),
					path:      strings.Split(k.TemplatePath, "."),
					templates: common,
				}
				if x.byResource[k.Resource] == nil {
					x.byResource[k.Resource] = &candidates{}
				}
				of := x.byResource[k.Resource]
				of.targets = append(of.targets, target{batch: b, template: at})
			}
		}
	}
	shareValues(all)
	return x
}

// candidates returns the targets that can match a resource.
func (x index) candidates(resource string) *candidates {
	if found, ok := x.byResource[resource]; ok {
		return found
	}
	return x.any
}

func merge(a, b []*Compiled) []*Compiled {
	out := slices.Concat(a, b)
	slices.SortStableFunc(out, byName)
	return out
}

func byName(a, b *Compiled) int { return strings.Compare(a.name, b.name) }

// candidates are the targets that can match a resource. Requests often match the same ones, so
// the union of what those read is kept from one request to the next.
type candidates struct {
	targets []target
	create  atomic.Pointer[combination]
	update  atomic.Pointer[combination]
	other   atomic.Pointer[combination] // of DELETE and CONNECT
}

// combination has what some targets read together.
type combination struct {
	operation admissionv1.Operation
	targets   []matchedTarget
	reads     inputs
}

// readsOf returns what targets read of a request together.
func (c *candidates) readsOf(matched []matchedTarget, operation admissionv1.Operation) inputs {
	last := c.last(operation)
	if known := last.Load(); known != nil && known.operation == operation && slices.EqualFunc(known.targets, matched, sameTarget) {
		return known.reads
	}
	next := &combination{operation: operation, targets: slices.Clone(matched)}
	for _, m := range matched {
		next.reads = next.reads.with(m.readsFor(operation))
	}
	last.Store(next)
	return next.reads
}

func (c *candidates) last(operation admissionv1.Operation) *atomic.Pointer[combination] {
	switch operation {
	case admissionv1.Create:
		return &c.create
	case admissionv1.Update:
		return &c.update
	}
	return &c.other
}

func sameTarget(a, b matchedTarget) bool { return a.target == b.target }
