package offline

import (
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/cli/kubernetes"
	"github.com/ostiary/ostiary/internal/policy"
)

// APIs are the APIs of an API server: those of a Kubernetes version, and those of
// CustomResourceDefinitions. It is safe for concurrent use.
type APIs struct {
	*apiresources.Resources

	builtin func() managedfields.TypeConverter
	custom  map[schema.GroupVersion]func() managedfields.TypeConverter
}

// NewAPIs returns the APIs of a version and of definitions.
func NewAPIs(e policy.Engine, definitions []*apiextensionsv1.CustomResourceDefinition) (*APIs, error) {
	lists, err := kubernetes.Resources(e)
	if err != nil {
		return nil, err
	}
	own := v1alpha1.GroupVersion
	lists[own] = append(lists[own], metav1.APIResource{Name: "webhookpolicies", Kind: "WebhookPolicy", Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}})
	a := &APIs{custom: map[schema.GroupVersion]func() managedfields.TypeConverter{}}
	for _, d := range definitions {
		if err := resourcesOf(d, func(gv schema.GroupVersion, r metav1.APIResource) { lists[gv] = append(lists[gv], r) }); err != nil {
			return nil, err
		}
		for _, v := range d.Spec.Versions {
			a.addConverter(d, v.Name)
		}
	}
	a.Resources = apiresources.New(lists)
	// The schemas take some time, and few policies need them.
	a.builtin = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })
	return a, nil
}

// addConverter adds the schema of a version. Several definitions of a group and version
// each have a document, like those of the API server; a converter tries the earlier ones
// too.
func (a *APIs) addConverter(d *apiextensionsv1.CustomResourceDefinition, version string) {
	gv := schema.GroupVersion{Group: d.Spec.Group, Version: version}
	before := a.custom[gv]
	a.custom[gv] = sync.OnceValue(func() managedfields.TypeConverter {
		var earlier managedfields.TypeConverter
		if before != nil {
			earlier = before()
		}
		document, err := builder.BuildOpenAPIV3(d, version, builder.Options{AllowNonStructural: true})
		if err != nil {
			return earlier
		}
		own, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
		if err != nil {
			return earlier
		}
		return converters{TypeConverter: own, kind: d.Spec.Names.Kind, others: earlier}
	})
}

// converters is the converter of one kind, with those of others.
type converters struct {
	managedfields.TypeConverter
	kind   string
	others managedfields.TypeConverter
}

// GetTypeConverter implements policy.TypeConverters.
func (a *APIs) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	if custom := a.custom[kind.GroupVersion()]; custom != nil {
		found := custom()
		for {
			c, ok := found.(converters)
			if !ok || c.kind == kind.Kind {
				return found
			}
			found = c.others
		}
	}
	return a.builtin()
}

// ObjectInterfaces returns the Go types of Kubernetes with the resources of these APIs.
func (a *APIs) ObjectInterfaces() admission.ObjectInterfaces {
	return objectInterfaces{ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme), mapper: a.Resources}
}

type objectInterfaces struct {
	admission.ObjectInterfaces
	mapper runtime.EquivalentResourceMapper
}

// GetEquivalentResourceMapper implements admission.ObjectInterfaces.
func (o objectInterfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return o.mapper
}

// resource returns the resource of a kind.
func (a *APIs) resource(kind schema.GroupVersionKind) (policy.KindResource, error) {
	found, err := a.ResourcesOf(kind)
	if err != nil {
		return policy.KindResource{}, fmt.Errorf("the kind %s in %s is not known: add its CustomResourceDefinition to the files, or correct apiVersion and kind", kind.Kind, kind.GroupVersion())
	}
	return found[0], nil
}
