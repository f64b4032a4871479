package audit

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// maxResources limits the resources of one policy. Only wildcards reach it.
const maxResources = 500

// served are the resources of an API server by group version.
type served = map[schema.GroupVersion][]metav1.APIResource

// wantedResource is a resource with the policies that are evaluated on its objects.
type wantedResource struct {
	kind       schema.GroupVersionKind
	namespaced bool
	targets    map[string]target // by policy
}

// found is a resource that the API server serves.
type found struct {
	schema.GroupVersionResource
	metav1.APIResource
}

func (f found) gvk() schema.GroupVersionKind {
	if f.APIResource.Version != "" {
		return schema.GroupVersionKind{Group: f.APIResource.Group, Version: f.APIResource.Version, Kind: f.Kind}
	}
	return f.GroupVersionResource.GroupVersion().WithKind(f.Kind)
}

// resourcesOf returns the resources whose objects a policy can match in an UPDATE, each in
// one version: the highest that matches. more reports that there are too many.
func resourcesOf(spec *v1alpha1.WebhookPolicySpec, api served) (out []found, more bool) {
	byName := map[schema.GroupResource]found{}
	rules := slices.Clone(spec.MatchConstraints.ResourceRules)
	if t := spec.TemplateSpec(); t != nil {
		rules = append(rules, t.MatchConstraints.ResourceRules...)
	}
	for gv, list := range api {
		for _, r := range list {
			f := found{gv.WithResource(r.Name), r}
			if !canList(r) || registration.Excludes(spec, f.GroupResource(), "", nil) || !slices.ContainsFunc(rules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool { return selects(rule, f) }) {
				continue
			}
			if other, ok := byName[f.GroupResource()]; !ok || version.CompareKubeAwareVersionStrings(gv.Version, other.GroupVersionResource.Version) > 0 {
				byName[f.GroupResource()] = f
			}
		}
	}
	for _, f := range byName {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b found) int { return strings.Compare(a.String(), b.String()) })
	if len(out) > maxResources {
		return out[:maxResources], true
	}
	return out, false
}

// String returns the resource as in messages.
func (f found) String() string { return f.GroupResource().String() }

func canList(r metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list")
}

// selects reports whether a rule matches updates of the objects of a resource.
func selects(rule admissionregistrationv1.NamedRuleWithOperations, f found) bool {
	scope := admissionregistrationv1.ClusterScope
	if f.Namespaced {
		scope = admissionregistrationv1.NamespacedScope
	}
	return hasOrAll(rule.Operations, admissionregistrationv1.Update) &&
		(rule.Scope == nil || *rule.Scope == admissionregistrationv1.AllScopes || *rule.Scope == scope) &&
		hasOrAll(rule.APIGroups, f.GroupVersionResource.Group) && hasOrAll(rule.APIVersions, f.GroupVersionResource.Version) &&
		slices.ContainsFunc(rule.Resources, func(entry string) bool {
			name, sub, _ := strings.Cut(entry, "/")
			return (name == "*" || name == f.Name) && (sub == "" || sub == "*")
		})
}

func hasOrAll[S ~string](list []S, value S) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}

// forbidden returns what to do about a resource that may not be read.
func forbidden(gr schema.GroupResource) string {
	return fmt.Sprintf(`Ostiary may not list %s for the audit: create a ClusterRole with the label %s: "true" and the rule {apiGroups: [%q], resources: [%q], verbs: [list, watch]}`,
		gr, AggregationLabel, gr.Group, gr.Resource)
}
