package policy

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// Group holds the policies of one webhook. It is immutable.
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
	byResource map[string][]target // by resource name
	any        []target            // with wildcards, for resources that no policy names
}

func newIndex(policies []*Compiled) index {
	byResource := map[string][]*Compiled{}
	var wildcards []*Compiled
	for _, p := range policies {
		names, wildcard := resourcesOf(p)
		if wildcard {
			wildcards = append(wildcards, p)
			continue
		}
		for _, name := range names {
			byResource[name] = append(byResource[name], p)
		}
	}
	x := index{byResource: make(map[string][]target, len(byResource)), any: objectTargets(newBatches(wildcards))}
	for name, exact := range byResource {
		x.byResource[name] = objectTargets(newBatches(merge(exact, wildcards)))
	}
	return x
}

// newTemplateIndex returns the targets of the pod templates of policies, sorted by name.
func newTemplateIndex(policies []*Compiled) index {
	byKey := map[string][]*Compiled{}
	for _, p := range policies {
		if p.templates != nil {
			byKey[p.templates.key] = append(byKey[p.templates.key], p)
		}
	}
	x := index{byResource: map[string][]target{}}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		for _, b := range newBatches(byKey[key]) { // equal keys contain equal rules: there is one
			common := b.policies[0].templates
			for _, k := range common.kinds {
				at := &templateTarget{
					resource:  k.GroupVersionResource(),
					path:      strings.Split(k.TemplatePath, "."),
					templates: common,
				}
				x.byResource[k.Resource] = append(x.byResource[k.Resource], target{batch: b, template: at})
			}
		}
	}
	return x
}

// candidates returns the targets that can match a resource.
func (x index) candidates(resource string) []target {
	if found, ok := x.byResource[resource]; ok {
		return found
	}
	return x.any
}

func resourcesOf(p *Compiled) (names []string, wildcard bool) {
	for _, r := range p.include {
		for _, resource := range r.Resources {
			name, _, _ := strings.Cut(resource, "/")
			if name == "*" {
				return nil, true
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, false
}

func merge(a, b []*Compiled) []*Compiled {
	out := slices.Concat(a, b)
	slices.SortStableFunc(out, byName)
	return out
}

func byName(a, b *Compiled) int { return strings.Compare(a.name, b.name) }

// rule is a resource rule; with names it matches only the objects with these names.
type rule struct {
	admissionregistrationv1.RuleWithOperations
	names []string
}

func newRules(in []admissionregistrationv1.NamedRuleWithOperations) []rule {
	out := make([]rule, len(in))
	for i := range in {
		out[i] = rule{RuleWithOperations: *in[i].RuleWithOperations.DeepCopy(), names: slices.Clone(in[i].ResourceNames)}
	}
	return out
}

func (r *rule) matches(attr admission.Attributes) bool {
	matcher := rules.Matcher{Rule: r.RuleWithOperations, Attr: attr}
	return matcher.Matches() && (len(r.names) == 0 || slices.Contains(r.names, attr.GetName()))
}

func anyMatches(rules []rule, attr admission.Attributes) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.matches(attr) })
}

// matches reports whether the policy applies to a request. The API server has applied the
// selectors. It sends the resource in the version of the registered rules, which can
// differ from that of the client.
func (c *Compiled) matches(r *request, host Environment) bool {
	return c.includes(r, host) && !anyMatches(c.exclude, r.match) && !c.excludes(r, host)
}

// includes checks every name of the resource if the rule of the request does not match
// because of the name of the object: names are not registered, and another version can
// have a rule without names.
func (c *Compiled) includes(r *request, host Environment) bool {
	if anyMatches(c.include, r.match) {
		return true
	}
	named := slices.ContainsFunc(c.include, func(r rule) bool { return len(r.names) > 0 })
	return named && c.matchesElsewhere(c.include, r.match, host)
}

// excludes checks the resource of the client and, with matchPolicy Equivalent, each of
// its other names.
func (c *Compiled) excludes(r *request, host Environment) bool {
	return len(c.exclude) > 0 && (anyMatches(c.exclude, r.original) || c.matchesElsewhere(c.exclude, r.original, host))
}

// matchesElsewhere reports whether a rule matches another name of the resource.
func (c *Compiled) matchesElsewhere(rules []rule, attr admission.Attributes, host Environment) bool {
	if !c.equivalent || host.Objects == nil {
		return false
	}
	original := attr.GetResource()
	for _, other := range host.Objects.GetEquivalentResourceMapper().EquivalentResourcesFor(original, attr.GetSubresource()) {
		if other != original && anyMatches(rules, resourceOverride{Attributes: attr, resource: other}) {
			return true
		}
	}
	return false
}

// resourceOverride holds the attributes of a request with another name of its resource.
type resourceOverride struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

// GetResource implements admission.Attributes.
func (o resourceOverride) GetResource() schema.GroupVersionResource { return o.resource }
