package rehearsal

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/guard"
)

const wildcard = "*"

// maxTargets bounds the resources of one rehearsal. Only wildcards reach it; familiar resources
// come first.
const maxTargets = 20

// target is a resource or subresource with the operations that rules match.
type target struct {
	apiresources.Kind
	resource, subresource string
	namespaced            bool
	operations            []admissionv1.Operation
	// excluded reports that excludeResourceRules match all of the operations.
	excluded bool
	// named reports that a rule names the resource, without wildcards.
	named bool
}

// name is the name as in rules: "pods/exec".
func (t *target) name() string {
	if t.subresource == "" {
		return t.resource
	}
	return t.resource + "/" + t.subresource
}

func (t *target) has(o admissionv1.Operation) bool { return slices.Contains(t.operations, o) }

// targetsOf returns what the rules of a policy match. A kind that is served in several versions
// is rehearsed in each that a rule matches. matched is the number of targets without the limit.
func targetsOf(spec *v1alpha1.WebhookPolicySpec, served apiresources.Lists) (out []target, matched int) {
	for gv, list := range served {
		for i := range list {
			t := newTarget(gv, &list[i])
			if guard.Excludes(spec, schema.GroupResource{Group: gv.Group, Resource: t.resource}, "", nil) {
				continue
			}
			if t.match(spec.MatchConstraints, possible(gv.Group, &list[i])); len(t.operations) > 0 {
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(cmp.Compare(familiarity(&a), familiarity(&b)), cmp.Compare(a.Served.String(),
			b.Served.String()), cmp.Compare(a.name(), b.name()))
	})
	return out[:min(len(out), maxTargets)], len(out)
}

func namesOf(targets []target) (names []string) {
	for i := range targets {
		if name := targets[i].name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func newTarget(gv schema.GroupVersion, r *metav1.APIResource) target {
	t := target{Kind: apiresources.Kind{GroupVersionKind: gv.WithKind(r.Kind), Served: gv}, namespaced: r.Namespaced}
	if r.Version != "" {
		t.GroupVersionKind = schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	}
	t.resource, t.subresource, _ = strings.Cut(r.Name, "/")
	return t
}

// match sets the operations that rules match, of those that are possible.
func (t *target) match(m *admissionregistrationv1.MatchResources, possible []admissionv1.Operation) {
	for _, o := range possible {
		if t.matchedBy(m.ResourceRules, o) {
			t.operations = append(t.operations, o)
		}
	}
	t.excluded = !slices.ContainsFunc(t.operations, func(o admissionv1.Operation) bool {
		return !t.matchedBy(slices.DeleteFunc(slices.Clone(m.ExcludeResourceRules), named), o)
	})
}

func named(r admissionregistrationv1.NamedRuleWithOperations) bool { return len(r.ResourceNames) > 0 }

func (t *target) matchedBy(rules []admissionregistrationv1.NamedRuleWithOperations, o admissionv1.Operation) bool {
	found := false
	for i := range rules {
		r := &rules[i]
		if !contains(r.APIGroups, t.Served.Group) || !contains(r.APIVersions, t.Served.Version) ||
			!contains(r.Operations, admissionregistrationv1.OperationType(o)) {
			continue
		}
		if s := r.Scope; s != nil && *s != admissionregistrationv1.AllScopes &&
			(*s == admissionregistrationv1.NamespacedScope) != t.namespaced {
			continue
		}
		for _, entry := range r.Resources {
			if t.isEntry(entry) {
				found = true
				t.named = t.named || entry == t.name()
			}
		}
	}
	return found
}

// isEntry reports whether an entry of a rule matches. As in API servers, "pods/*" matches pods.
func (t *target) isEntry(entry string) bool {
	name, sub, _ := strings.Cut(entry, "/")
	return (name == wildcard || name == t.resource) && (sub == wildcard || sub == t.subresource)
}

func contains[S ~string](list []S, value S) bool {
	return slices.Contains(list, value) || slices.Contains(list, wildcard)
}

// possible returns the operations of requests for a resource. A resource without verbs may have
// all of them.
func possible(group string, r *metav1.APIResource) []admissionv1.Operation {
	if group == "" {
		switch r.Name {
		case "nodes/proxy", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy":
			return []admissionv1.Operation{admissionv1.Connect}
		}
	}
	var out []admissionv1.Operation
	for _, o := range []struct {
		operation admissionv1.Operation
		verbs     []string
	}{
		{admissionv1.Create, []string{"create"}},
		{admissionv1.Update, []string{"update", "patch"}},
		{admissionv1.Delete, []string{"delete", "deletecollection"}},
	} {
		if len(r.Verbs) == 0 || slices.ContainsFunc(o.verbs, func(v string) bool { return slices.Contains(r.Verbs, v) }) {
			out = append(out, o.operation)
		}
	}
	return out
}

// familiarity orders resources, so that wildcards are rehearsed on those that every cluster has.
func familiarity(t *target) int {
	familiar := []string{"configmaps", "pods", "services", "secrets", "deployments", "serviceaccounts",
		"namespaces", "persistentvolumeclaims",
		"ingresses", "jobs", "statefulsets", "daemonsets", "cronjobs", "roles", "rolebindings", "clusterroles",
		"namespaces/status", "namespaces/finalize"}
	if i := slices.Index(familiar, t.name()); i >= 0 {
		return i
	}
	return len(familiar)
}
