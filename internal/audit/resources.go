package audit

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// MaxResources limits the resources of one policy. Only wildcards reach it.
const MaxResources = 500

// Served are the resources of an API server by group version.
type Served = map[schema.GroupVersion][]metav1.APIResource

// Resource is a resource whose objects are listed in one version.
type Resource struct {
	schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Namespaced bool
	// KeepsStatus means that there is no subresource for the status.
	KeepsStatus bool
}

// Resources returns the resources whose objects a policy can match in a CREATE or UPDATE, sorted, each
// in one version: the highest that a rule matches. more reports that there are more than
// MaxResources.
func Resources(spec *v1alpha1.WebhookPolicySpec, api Served) (out []Resource, more bool) {
	var rules []admissionregistrationv1.NamedRuleWithOperations
	if spec.MatchConstraints != nil {
		rules = slices.Clone(spec.MatchConstraints.ResourceRules)
	}
	if t := spec.TemplateSpec(); t != nil {
		rules = append(rules, t.MatchConstraints.ResourceRules...)
	}
	byName := map[schema.GroupResource]Resource{}
	for gv, list := range api {
		for i := range list {
			r := Resource{GroupVersionResource: gv.WithResource(list[i].Name), Kind: kindOf(gv, &list[i]), Namespaced: list[i].Namespaced}
			if !canList(&list[i]) || guard.Excludes(spec, r.GroupResource(), "", nil) || !slices.ContainsFunc(rules, r.isWrittenBy) {
				continue
			}
			isStatus := func(o metav1.APIResource) bool { return o.Name == r.Resource+"/status" }
			r.KeepsStatus = !slices.ContainsFunc(list, isStatus)
			if other, ok := byName[r.GroupResource()]; !ok || version.CompareKubeAwareVersionStrings(gv.Version, other.Version) > 0 {
				byName[r.GroupResource()] = r
			}
		}
	}
	for _, r := range byName {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Resource) int {
		return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
	})
	if len(out) > MaxResources {
		return out[:MaxResources], true
	}
	return out, false
}

func kindOf(gv schema.GroupVersion, r *metav1.APIResource) schema.GroupVersionKind {
	if r.Version != "" {
		return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	}
	return gv.WithKind(r.Kind)
}

func canList(r *metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list")
}

// isWrittenBy reports whether a rule matches a CREATE or UPDATE of objects of the resource. As in
// API servers, pods/* matches Pods too.
func (r Resource) isWrittenBy(rule admissionregistrationv1.NamedRuleWithOperations) bool {
	scope := admissionregistrationv1.ClusterScope
	if r.Namespaced {
		scope = admissionregistrationv1.NamespacedScope
	}
	return (hasOrAll(rule.Operations, admissionregistrationv1.Create) || hasOrAll(rule.Operations, admissionregistrationv1.Update)) &&
		(rule.Scope == nil || *rule.Scope == admissionregistrationv1.AllScopes || *rule.Scope == scope) &&
		hasOrAll(rule.APIGroups, r.Group) && hasOrAll(rule.APIVersions, r.Version) &&
		slices.ContainsFunc(rule.Resources, func(entry string) bool {
			name, sub, _ := strings.Cut(entry, "/")
			return (name == "*" || name == r.Resource) && (sub == "" || sub == "*")
		})
}

func hasOrAll[S ~string](list []S, value S) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}
