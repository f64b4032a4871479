package resources

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
)

// Matcher matches bindings like the API server, but from cached resources. A newer
// resource may be equivalent to one in a rule. Matches then returns an error, to which
// failurePolicy applies, instead of "does not match".
type Matcher struct {
	Matcher   *matching.Matcher
	Resources *Resources
}

// Matches implements matchresources.Matcher.
func (m Matcher) Matches(attr admission.Attributes, o admission.ObjectInterfaces, criteria matching.MatchCriteria) (bool, schema.GroupVersionResource, schema.GroupVersionKind, error) {
	matches, resource, kind, err := m.Matcher.Matches(attr, o, criteria)
	if matches || err != nil || !m.mayMatch(attr, criteria.GetMatchResources()) {
		return matches, resource, kind, err
	}
	if otherwise, _, _, err := m.Matcher.Matches(attr, o, withoutRules{criteria}); !otherwise || err != nil {
		return false, resource, kind, err
	}
	m.Resources.Refresh()
	return false, resource, kind, fmt.Errorf("the resource %s is not known yet: retry after the next discovery, within a few seconds", attr.GetResource())
}

// mayMatch reports whether the resource is unknown and a rule may match it.
func (m Matcher) mayMatch(attr admission.Attributes, resources admissionregistrationv1.MatchResources) bool {
	if resources.MatchPolicy == nil || *resources.MatchPolicy != admissionregistrationv1.Equivalent {
		return false
	}
	requested := attr.GetResource()
	if !m.Resources.KindFor(requested, attr.GetSubresource()).Empty() {
		return false
	}
	return slices.ContainsFunc(resources.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(r.Resources, func(pattern string) bool {
			name, _, _ := strings.Cut(pattern, "/")
			return name == requested.Resource || (name == "*" && (slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, requested.Group)))
		})
	})
}

// withoutRules are criteria that match every resource.
type withoutRules struct{ matching.MatchCriteria }

// GetMatchResources implements matching.MatchCriteria.
func (w withoutRules) GetMatchResources() admissionregistrationv1.MatchResources {
	resources := w.MatchCriteria.GetMatchResources()
	resources.ResourceRules = nil
	return resources
}
