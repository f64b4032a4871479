package offline

import (
	"maps"
	"slices"
	"strings"
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
	"github.com/ostiary/ostiary/internal/kubernetes"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/policy"
)

// APIs are the APIs of an API server: those of a Kubernetes version, and those of
// CustomResourceDefinitions. It is safe for concurrent use.
type APIs struct {
	*apiresources.Resources
	// DefaultNamespace is that of objects without one; "" is "default".
	DefaultNamespace string

	builtin func(schema.GroupVersionKind) managedfields.TypeConverter
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
	// The schemas take some time, and few policies need them.
	builtin := sync.OnceValue(builtinSchemas)
	return newAPIs(lists, definitions, func(schema.GroupVersionKind) managedfields.TypeConverter { return builtin() })
}

func builtinSchemas() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
}

// NewAPIsOf returns the APIs of an API server, from its resources and schemas, and of
// definitions, which replace those of the API server. Kinds without a schema have that of
// this program.
func NewAPIsOf(lists apiresources.Lists, schemas func(schema.GroupVersionKind) managedfields.TypeConverter, definitions []*apiextensionsv1.CustomResourceDefinition) (*APIs, error) {
	lists = maps.Clone(lists)
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
			lists[gv] = slices.DeleteFunc(slices.Clone(lists[gv]), func(r metav1.APIResource) bool {
				name, _, _ := strings.Cut(r.Name, "/")
				return name == d.Spec.Names.Plural
			})
		}
	}
	builtin := sync.OnceValue(builtinSchemas)
	return newAPIs(lists, definitions, func(kind schema.GroupVersionKind) managedfields.TypeConverter {
		if found := schemas(kind); found != nil {
			return found
		}
		return builtin()
	})
}

func newAPIs(lists apiresources.Lists, definitions []*apiextensionsv1.CustomResourceDefinition, builtin func(schema.GroupVersionKind) managedfields.TypeConverter) (*APIs, error) {
	a := &APIs{builtin: builtin, custom: map[schema.GroupVersion]func() managedfields.TypeConverter{}}
	for _, d := range definitions {
		if err := resourcesOf(d, func(gv schema.GroupVersion, r metav1.APIResource) { lists[gv] = append(lists[gv], r) }); err != nil {
			return nil, err
		}
		for _, v := range d.Spec.Versions {
			a.addConverter(d, v.Name)
		}
	}
	a.Resources = apiresources.New(lists)
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
		for c, ok := custom().(converters); ok; c, ok = c.others.(converters) {
			if c.kind == kind.Kind {
				return c
			}
		}
	}
	return a.builtin(kind)
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
func (a *APIs) resource(kind schema.GroupVersionKind) (pluginapi.KindResource, error) {
	found, err := a.ResourcesOf(kind)
	if err != nil {
		return pluginapi.KindResource{}, a.unknownKind(kind)
	}
	return found[0], nil
}

// CheckKind returns an error for a kind that is not served, with the kind that its author
// probably means.
func (a *APIs) CheckKind(kind schema.GroupVersionKind) error {
	_, err := a.resource(kind)
	return err
}
