package policy

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

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
