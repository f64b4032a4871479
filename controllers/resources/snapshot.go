package resources

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/policy"
)

// snapshot is the result of a discovery. It is immutable.
type snapshot struct {
	lists  map[schema.GroupVersion][]metav1.APIResource
	order  []schema.GroupVersion
	mapper runtime.EquivalentResourceMapper
}

func newSnapshot(lists map[schema.GroupVersion][]metav1.APIResource) *snapshot {
	s := &snapshot{lists: lists, order: sorted(lists)}
	identities := s.identities()
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string { return identities[r] })
	for _, gv := range s.order {
		for _, r := range lists[gv] {
			name, sub, _ := strings.Cut(r.Name, "/")
			registry.RegisterKindFor(gv.WithResource(name), sub, kindOf(gv, r))
		}
	}
	s.mapper = registry
	return s
}

// list returns the resources of a group version; nil if they are unknown.
func (s *snapshot) list(gv schema.GroupVersion) []metav1.APIResource {
	if s == nil {
		return nil
	}
	return s.lists[gv]
}

// identities returns a key for each resource: resources with equal keys contain the
// same objects, such as the events of two groups. The key consists of the name and
// the storage version hash. A resource without a hash is equivalent only to its other
// versions. Subresources follow their resource.
func (s *snapshot) identities() map[schema.GroupResource]string {
	out := map[schema.GroupResource]string{}
	for _, gv := range s.order {
		for _, r := range s.lists[gv] {
			resource := schema.GroupResource{Group: gv.Group, Resource: r.Name}
			if r.StorageVersionHash != "" && out[resource] == "" {
				out[resource] = r.Name + " " + r.StorageVersionHash
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
	s := r.current.Load()
	if s == nil {
		return nil
	}
	return kindsIn(s.lists, s.order, rule, limit)
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

// ResourcesOf implements policy.Kinds. It returns the resources of a kind, without
// subresources.
func (r *Resources) ResourcesOf(kind schema.GroupVersionKind) ([]policy.KindResource, error) {
	var out []policy.KindResource
	for _, resource := range r.current.Load().list(kind.GroupVersion()) {
		if resource.Kind == kind.Kind && !strings.Contains(resource.Name, "/") {
			out = append(out, policy.KindResource{GroupVersionResource: kind.GroupVersion().WithResource(resource.Name), Namespaced: resource.Namespaced})
		}
	}
	if len(out) == 0 {
		r.Refresh()
		return nil, fmt.Errorf("no matches for kind %q in version %q", kind.Kind, kind.GroupVersion().String())
	}
	return out, nil
}
