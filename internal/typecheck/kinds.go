package typecheck

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/plugins"
)

// maxKinds bounds the kinds for which a policy is checked, as in the API server.
const maxKinds = 10

// KindsOf returns the kinds of the resources that the rules of a policy name. A rule for
// all groups or all resources is for objects of any kind, and names none. complete is
// false if a rule names resources that are not served.
func KindsOf(p *v1alpha1.WebhookPolicy, served apiresources.Lists) (out []apiresources.Kind, complete bool) {
	match := plugins.Resolve(p).Policy.Spec.MatchConstraints
	if match == nil {
		return nil, true
	}
	complete = true
	for _, r := range match.ResourceRules {
		if slices.Contains(r.APIGroups, "*") {
			continue
		}
		rule := admissionregistrationv1.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: named(r.Resources)}
		found := apiresources.KindsIn(served, rule, maxKinds)
		complete = complete && (len(found) > 0 || len(rule.Resources) == 0)
		for _, kind := range found {
			if len(out) < maxKinds && !slices.ContainsFunc(out, func(k apiresources.Kind) bool { return k.GroupVersionKind == kind.GroupVersionKind }) {
				out = append(out, kind)
			}
		}
	}
	return out, complete
}

// StoredKindsOf returns the kind of each lookup of a policy; the zero value for a resource that is not served.
func StoredKindsOf(p *v1alpha1.WebhookPolicy, served apiresources.Lists) []apiresources.Kind {
	out := make([]apiresources.Kind, len(p.Spec.Lookups))
	for i, l := range p.Spec.Lookups {
		rule := admissionregistrationv1.Rule{
			APIGroups: []string{l.Resource.Group}, APIVersions: []string{l.Resource.Version}, Resources: []string{l.Resource.Resource},
		}
		if found := apiresources.KindsIn(served, rule, 1); len(found) > 0 {
			out[i] = found[0]
		}
	}
	return out
}

// named are the entries of a rule that name a resource or a subresource.
func named(entries []string) []string {
	var out []string
	for _, entry := range entries {
		if name, sub, _ := strings.Cut(entry, "/"); sub == "*" {
			entry = name
		}
		if !strings.Contains(entry, "*") {
			out = append(out, entry)
		}
	}
	return out
}
