package policy

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// rule is one resource rule; names, where there are any, are the only object
// names it matches.
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

// matches reports whether the policy is for a request. The API server has
// applied the selectors already; it sends the resource in the version that the
// registered rules ask for, which may not be the one the client named.
func (c *Compiled) matches(r *request, host Environment) bool {
	return c.includes(r, host) && !anyMatches(c.exclude, r.match) && !c.excludes(r, host)
}

// includes looks at every name of the resource where a rule that the request
// was sent for may not hold because of the object's name: that is not
// registered, and another version may have a rule without names.
func (c *Compiled) includes(r *request, host Environment) bool {
	if anyMatches(c.include, r.match) {
		return true
	}
	named := slices.ContainsFunc(c.include, func(r rule) bool { return len(r.names) > 0 })
	return named && c.matchesElsewhere(c.include, r.match, host)
}

// excludes looks at the resource as the client named it and, where the policy
// is for equivalent resources, at every other name of it.
func (c *Compiled) excludes(r *request, host Environment) bool {
	return len(c.exclude) > 0 && (anyMatches(c.exclude, r.original) || c.matchesElsewhere(c.exclude, r.original, host))
}

// matchesElsewhere reports whether a rule matches under another name of the
// resource.
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

// resourceOverride are attributes of a request under another name of its resource.
type resourceOverride struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

// GetResource implements admission.Attributes.
func (o resourceOverride) GetResource() schema.GroupVersionResource { return o.resource }

// index finds the policies that may match a request without looking at all of
// them: a call costs what its resource has, not what exists.
type index struct {
	byResource map[string][]*batch // by resource name
	any        []*batch            // for a resource that no policy names: those with a wildcard
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
	x := index{byResource: make(map[string][]*batch, len(byResource)), any: newBatches(wildcards)}
	for name, exact := range byResource {
		x.byResource[name] = newBatches(merge(exact, wildcards))
	}
	return x
}

// candidates are the policies to look at for a resource.
func (x index) candidates(resource string) []*batch {
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
