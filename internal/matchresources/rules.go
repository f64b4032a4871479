package matchresources

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// Rules holds the resource rules of matchResources. It is immutable.
type Rules struct {
	include    []rule
	exclude    []rule
	equivalent bool // matchPolicy Equivalent
}

// rule is a resource rule; with names it matches only the objects with these names.
type rule struct {
	admissionregistrationv1.RuleWithOperations
	names []string
}

// NewRules does not keep its argument. Nil has no rules, which match nothing.
func NewRules(in *admissionregistrationv1.MatchResources) Rules {
	if in == nil {
		return Rules{}
	}
	return Rules{
		include:    newRules(in.ResourceRules),
		exclude:    newRules(in.ExcludeResourceRules),
		equivalent: in.MatchPolicy == nil || *in.MatchPolicy == admissionregistrationv1.Equivalent,
	}
}

func newRules(in []admissionregistrationv1.NamedRuleWithOperations) []rule {
	out := make([]rule, len(in))
	for i := range in {
		out[i] = rule{RuleWithOperations: *in[i].RuleWithOperations.DeepCopy(), names: slices.Clone(in[i].ResourceNames)}
	}
	return out
}

// RulesKey returns equal keys for equal rules.
func RulesKey(in *admissionregistrationv1.MatchResources) string {
	if in == nil {
		return ""
	}
	key, err := json.Marshal(admissionregistrationv1.MatchResources{
		ResourceRules: in.ResourceRules, ExcludeResourceRules: in.ExcludeResourceRules, MatchPolicy: in.MatchPolicy,
	})
	if err != nil {
		panic(fmt.Sprintf("encoding rules, which hold only strings: %v", err))
	}
	return string(key)
}

// Resources returns the names of the resources that rules include, without subresources, or
// that one of them has a wildcard.
func (r *Rules) Resources() (names []string, wildcard bool) {
	for i := range r.include {
		for _, resource := range r.include[i].Resources {
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

// Matches reports whether rules match a request. The API server has applied the selectors.
// It sends the resource in the version of the registered rules, in sent, which can differ
// from that of the client, in original. Objects finds equivalent resources; nil finds none.
func (r *Rules) Matches(sent, original admission.Attributes, objects admission.ObjectInterfaces) bool {
	return r.includes(sent, objects) && !anyMatches(r.exclude, sent) && !r.excludes(original, objects)
}

// includes checks every name of the resource if the rule of the request does not match
// because of the name of the object: names are not registered, and another version can
// have a rule without names.
func (r *Rules) includes(sent admission.Attributes, objects admission.ObjectInterfaces) bool {
	if anyMatches(r.include, sent) {
		return true
	}
	named := slices.ContainsFunc(r.include, func(r rule) bool { return len(r.names) > 0 })
	return named && r.matchesElsewhere(r.include, sent, objects)
}

// excludes checks the resource of the client and, with matchPolicy Equivalent, each of
// its other names.
func (r *Rules) excludes(original admission.Attributes, objects admission.ObjectInterfaces) bool {
	return len(r.exclude) > 0 && (anyMatches(r.exclude, original) || r.matchesElsewhere(r.exclude, original, objects))
}

// matchesElsewhere reports whether a rule matches another name of the resource.
func (r *Rules) matchesElsewhere(rules []rule, attr admission.Attributes, objects admission.ObjectInterfaces) bool {
	if !r.equivalent || objects == nil {
		return false
	}
	original := attr.GetResource()
	equivalent := objects.GetEquivalentResourceMapper().EquivalentResourcesFor(original, attr.GetSubresource())
	return slices.ContainsFunc(equivalent, func(other schema.GroupVersionResource) bool {
		return other != original && anyMatches(rules, resourceOverride{Attributes: attr, resource: other})
	})
}

func anyMatches(rules []rule, attr admission.Attributes) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.matches(attr) })
}

func (r *rule) matches(attr admission.Attributes) bool {
	matcher := rules.Matcher{Rule: r.RuleWithOperations, Attr: attr}
	return matcher.Matches() && (len(r.names) == 0 || slices.Contains(r.names, attr.GetName()))
}

// resourceOverride holds the attributes of a request with another name of its resource.
type resourceOverride struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

// GetResource implements admission.Attributes.
func (o resourceOverride) GetResource() schema.GroupVersionResource { return o.resource }
