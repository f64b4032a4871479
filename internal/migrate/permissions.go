package migrate

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// Labels that add the rules of a ClusterRole to those with which Ostiary reads params and lookups.
const (
	labelParams  = "admission.ostiary.dev/aggregate-to-params"
	labelLookups = "admission.ostiary.dev/aggregate-to-lookups"
)

// AddPermissions adds for each kind of params, and for each resource of lookups, that results read a
// ClusterRole that lets Ostiary read it. The input may define the kind.
func (r *Result) AddPermissions(input []load.Object) {
	r.addLookupRoles()
	known := map[schema.GroupKind]bool{}
	for i := range r.Conversions {
		c := &r.Conversions[i]
		for _, o := range slices.Clone(c.Outputs) {
			p := o.Policy()
			if p == nil || p.Spec.ParamKind == nil {
				continue
			}
			kind := schema.FromAPIVersionAndKind(p.Spec.ParamKind.APIVersion, p.Spec.ParamKind.Kind)
			if known[kind.GroupKind()] || kind.GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
				continue // a policy could show the content of Secrets in its messages
			}
			known[kind.GroupKind()] = true
			role := paramsRole(kind, input)
			c.Outputs = append(c.Outputs, role)
			r.Outputs = append(r.Outputs, role)
		}
	}
}

// addLookupRoles adds the ClusterRoles for the resources of lookups.
func (r *Result) addLookupRoles() {
	known := map[schema.GroupResource]bool{}
	for i := range r.Conversions {
		c := &r.Conversions[i]
		for _, o := range slices.Clone(c.Outputs) {
			p := o.Policy()
			if p == nil {
				continue
			}
			for _, l := range p.Spec.Lookups {
				resource := schema.GroupResource{Group: l.Resource.Group, Resource: l.Resource.Resource}
				if known[resource] {
					continue
				}
				known[resource] = true
				role := readingRole("ostiary-lookups-"+resource.String(), labelLookups, resource, "list", "watch")
				c.Outputs = append(c.Outputs, role)
				r.Outputs = append(r.Outputs, role)
			}
		}
	}
}

// readingRole returns a ClusterRole that is added to another one by its label.
func readingRole(name, label string, resource schema.GroupResource, verbs ...string) *conversion.Output {
	return &conversion.Output{Object: &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: verbs,
		}},
	}}
}

// paramsRole returns the permission to read a kind.
func paramsRole(kind schema.GroupVersionKind, input []load.Object) *conversion.Output {
	resource, isKnown := resourceOf(kind, input)
	name := "ostiary-params-" + resource
	if kind.Group != "" {
		name += "." + kind.Group
	}
	o := readingRole(name, labelParams, schema.GroupResource{Group: kind.Group, Resource: resource}, "get", "list", "watch")
	if !isKnown {
		o.Comments = map[string]string{"rules[0].resources": "a guess for the kind " + kind.Kind}
	}
	return o
}

// resourceOf returns the name of the resource of a kind, and whether it is known.
func resourceOf(kind schema.GroupVersionKind, input []load.Object) (name string, isKnown bool) {
	for i := range input {
		if input[i].Kind != "CustomResourceDefinition" {
			continue
		}
		d := &apiextensionsv1.CustomResourceDefinition{}
		if input[i].Read(d) == nil && d.Spec.Group == kind.Group && d.Spec.Names.Kind == kind.Kind {
			return d.Spec.Names.Plural, true
		}
	}
	if kind.Group == "constraints.gatekeeper.sh" {
		return strings.ToLower(kind.Kind), true // Gatekeeper writes the definition
	}
	guess, _ := meta.UnsafeGuessKindToResource(kind)
	return guess.Resource, kind.Group == "" && kind.Kind == "ConfigMap"
}
