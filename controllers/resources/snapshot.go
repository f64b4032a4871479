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

// snapshot is the resources at one moment. It is immutable.
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

// list is what was known of a version, nil where nothing was.
func (s *snapshot) list(gv schema.GroupVersion) []metav1.APIResource {
	if s == nil {
		return nil
	}
	return s.lists[gv]
}

// identities tell resources of several groups that are the same objects, as
// the events of two groups are, by their name and the hash of what they are
// stored as. Without a hash a resource is the same in the versions of its own
// group alone. Subresources go with their resource.
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

// kindOf is the kind of what is sent to a resource, which a subresource may
// take from another group.
func kindOf(gv schema.GroupVersion, r metav1.APIResource) schema.GroupVersionKind {
	if r.Version != "" {
		gv = schema.GroupVersion{Group: r.Group, Version: r.Version}
	}
	return gv.WithKind(r.Kind)
}

// Kind is the kind of what is sent to a resource.
type Kind struct {
	schema.GroupVersionKind
	// Served is where the resource is, which for a subresource may be in another
	// group than its kind.
	Served schema.GroupVersion
}

// Kinds are those of the resources that a rule is for, in a stable order, and
// no more of them than limit.
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

// names reports whether one of the patterns of a rule is for a resource, as
// "pods" or "pods/status".
func names(patterns []string, resource string) bool {
	name, sub, _ := strings.Cut(resource, "/")
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		wantName, wantSub, _ := strings.Cut(pattern, "/")
		return (wantName == "*" || wantName == name) && (wantSub == "*" || wantSub == sub)
	})
}

// ResourcesOf implements policy.Kinds: the resources of a kind in one version,
// without subresources.
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
