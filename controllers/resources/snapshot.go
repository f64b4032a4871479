package resources

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

// listOf returns the resources of a group version; nil if they are unknown.
func listOf(s *apiresources.Resources, gv schema.GroupVersion) []metav1.APIResource {
	if s == nil {
		return nil
	}
	return s.Lists()[gv]
}

// Kinds returns the kinds of at most limit resources that match a rule, in a stable
// order.
func (r *Resources) Kinds(rule admissionregistrationv1.Rule, limit int) []apiresources.Kind {
	s := r.current.Load()
	if s == nil {
		return nil
	}
	return s.Kinds(rule, limit)
}

// ResourcesOf implements pluginapi.Kinds. It returns the resources of a kind, without
// subresources.
func (r *Resources) ResourcesOf(kind schema.GroupVersionKind) ([]pluginapi.KindResource, error) {
	out, err := r.current.Load().ResourcesOf(kind)
	if err != nil {
		r.Refresh()
	}
	return out, err
}
