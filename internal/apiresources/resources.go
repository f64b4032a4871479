// Package apiresources describes the resources that an API server serves: their kinds, and which
// of them contain the same objects.
package apiresources

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/pluginapi"
)

// Lists are the resources by group version, with subresources.
type Lists = map[schema.GroupVersion][]metav1.APIResource

// Resources are the resources of an API server at one moment. They are immutable. They
// implement runtime.EquivalentResourceMapper and pluginapi.Kinds.
type Resources struct {
	runtime.EquivalentResourceMapper

	lists Lists
	order []schema.GroupVersion
}

// New returns the resources of some lists, and keeps them.
func New(lists Lists) *Resources {
	r := &Resources{lists: lists, order: sorted(lists)}
	identities := r.identities()
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string { return identities[r] })
	for _, gv := range r.order {
		for _, resource := range lists[gv] {
			name, sub, _ := strings.Cut(resource.Name, "/")
			registry.RegisterKindFor(gv.WithResource(name), sub, kindOf(gv, resource))
		}
	}
	r.EquivalentResourceMapper = registry
	return r
}

// Lists returns all resources. The caller must not change them.
func (r *Resources) Lists() Lists { return r.lists }

// identities returns a key for each resource: resources with equal keys contain the
// same objects, such as the events of two groups. The key consists of the name and
// the storage version hash. A resource without a hash is equivalent only to its other
// versions. Subresources follow their resource.
func (r *Resources) identities() map[schema.GroupResource]string {
	out := map[schema.GroupResource]string{}
	for _, gv := range r.order {
		for _, resource := range r.lists[gv] {
			key := schema.GroupResource{Group: gv.Group, Resource: resource.Name}
			if resource.StorageVersionHash != "" && out[key] == "" {
				out[key] = resource.Name + " " + resource.StorageVersionHash
			}
		}
	}
	return out
}

// kindOf returns the kind of the objects in requests for a resource. The kind of a
// subresource may belong to another group.
func kindOf(gv schema.GroupVersion, r metav1.APIResource) schema.GroupVersionKind {
	if r.Version != "" {
		gv = schema.GroupVersion{Group: r.Group, Version: r.Version}
	}
	return gv.WithKind(r.Kind)
}

// Kind is the kind of the objects in requests for a resource.
type Kind struct {
	schema.GroupVersionKind
	// Served is the group version of the resource. For a subresource it may differ
	// from the kind's.
	Served schema.GroupVersion
}

// Kinds returns the kinds of at most limit resources that match a rule, in a stable
// order.
func (r *Resources) Kinds(rule admissionregistrationv1.Rule, limit int) []Kind {
	return kindsIn(r.lists, r.order, rule, limit)
}

// KindsIn is Kinds of the resources of some lists.
func KindsIn(lists Lists, rule admissionregistrationv1.Rule, limit int) []Kind {
	return kindsIn(lists, sorted(lists), rule, limit)
}

// sorted returns group versions in the order of their names.
func sorted(lists Lists) []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(lists), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	})
}

func kindsIn(lists Lists, order []schema.GroupVersion, rule admissionregistrationv1.Rule, limit int) []Kind {
	var out []Kind
	for _, gv := range order {
		if !anyOf(rule.APIGroups, gv.Group) || !anyOf(rule.APIVersions, gv.Version) {
			continue
		}
		for _, resource := range lists[gv] {
			if len(out) == limit {
				return out
			}
			kind := Kind{GroupVersionKind: kindOf(gv, resource), Served: gv}
			if names(rule.Resources, resource.Name) && !slices.Contains(out, kind) {
				out = append(out, kind)
			}
		}
	}
	return out
}

func anyOf(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

// names reports whether a pattern of a rule matches a resource, such as "pods" or
// "pods/status".
func names(patterns []string, resource string) bool {
	name, sub, _ := strings.Cut(resource, "/")
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		wantName, wantSub, _ := strings.Cut(pattern, "/")
		return (wantName == "*" || wantName == name) && (wantSub == "*" || wantSub == sub)
	})
}

// ResourcesOf implements pluginapi.Kinds. It returns the resources of a kind, without
// subresources.
func (r *Resources) ResourcesOf(kind schema.GroupVersionKind) ([]pluginapi.KindResource, error) {
	var out []pluginapi.KindResource
	if r == nil {
		return nil, unknownKind(kind)
	}
	for _, resource := range r.lists[kind.GroupVersion()] {
		if resource.Kind == kind.Kind && !strings.Contains(resource.Name, "/") {
			out = append(out, pluginapi.KindResource{
				GroupVersionResource: kind.GroupVersion().WithResource(resource.Name),
				Namespaced:           resource.Namespaced,
			})
		}
	}
	if len(out) == 0 {
		return nil, unknownKind(kind)
	}
	return out, nil
}

func unknownKind(kind schema.GroupVersionKind) error {
	return fmt.Errorf("no matches for kind %q in version %q", kind.Kind, kind.GroupVersion().String())
}
