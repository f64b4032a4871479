package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/pager"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/policy"
)

// Cluster reads what evaluations need from an API server. It is safe for concurrent use.
type Cluster struct {
	// Engine is the engine for the version of the API server.
	Engine policy.Engine
	// Resources are the resources that the API server serves.
	Resources apiresources.Lists

	config    *rest.Config
	dynamic   dynamic.Interface
	discovery *discovery.DiscoveryClient
	groups    []*restmapper.APIGroupResources

	mu      sync.Mutex
	schemas map[schema.GroupVersion]managedfields.TypeConverter
}

// NewCluster connects to an API server and reads its version and resources.
func NewCluster(ctx context.Context, config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // about versions that policies name
	c := &Cluster{config: config, Resources: apiresources.Lists{}, schemas: map[schema.GroupVersion]managedfields.TypeConverter{}}
	var err error
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	c.discovery.UseLegacyDiscovery = true // the other one has no storage version hash
	info, err := ServerVersion(ctx, config)
	if err != nil {
		return nil, err
	}
	if c.Engine, err = celengine.EngineOf(info.Major, info.Minor); err != nil {
		return nil, err
	}
	var failed *discovery.ErrGroupDiscoveryFailed
	if c.groups, err = restmapper.GetAPIGroupResourcesWithContext(ctx, c.discovery); err != nil && !errors.As(err, &failed) {
		return nil, fmt.Errorf("reading the resources of the API server: %w", err)
	}
	for _, g := range c.groups {
		for version, list := range g.VersionedResources {
			c.Resources[schema.GroupVersion{Group: g.Group.Name, Version: version}] = list
		}
	}
	return c, nil
}

// ServerVersion returns the version of an API server.
func ServerVersion(ctx context.Context, config *rest.Config) (*version.Info, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	info, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the version of the API server: %w", err)
	}
	return info, nil
}

// GetNamespace returns a Namespace.
func (c *Cluster) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	u, err := c.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the cluster has no Namespace %q: correct the name, or add the Namespace to the files", name)
	case err != nil:
		return nil, fmt.Errorf("reading the Namespace %q: %w", name, err)
	}
	n := &corev1.Namespace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
		return nil, fmt.Errorf("reading the Namespace %q: %w", name, err)
	}
	return n, nil
}

// List returns the objects of a resource, of a namespaced one those in a namespace, and with
// a name at most that object.
func (c *Cluster) List(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	err := c.Each(ctx, resource, namespace, name, func(u *unstructured.Unstructured) error {
		out = append(out, u)
		return nil
	})
	return out, err
}

// Each calls visit for the objects of List, of which it reads a page at a time.
func (c *Cluster) Each(
	ctx context.Context, resource schema.GroupVersionResource, namespace, name string, visit func(*unstructured.Unstructured) error,
) error {
	client := c.dynamic.Resource(resource).Namespace(namespace)
	options := metav1.ListOptions{}
	if name != "" {
		options.FieldSelector = "metadata.name=" + name
	}
	all := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	err := all.EachListItem(ctx, options, func(o runtime.Object) error {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("unexpected %T", o)
		}
		return visit(u)
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
	}
	return nil
}

// Get returns an object, and whether its kind is namespaced. The resource is written as for
// kubectl: pod, deploy, deployments.apps or deployments.v1.apps.
func (c *Cluster) Get(ctx context.Context, resource, namespace, name string) (*unstructured.Unstructured, error) {
	mapping, err := c.mapping(resource)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = ""
	}
	u, err := c.dynamic.Resource(mapping.Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading %s/%s: %w", resource, name, err)
	}
	return u, nil
}

// ResourceOf returns the full name of a resource that is written as for kubectl.
func (c *Cluster) ResourceOf(resource string) (schema.GroupResource, error) {
	mapping, err := c.mapping(resource)
	if err != nil {
		return schema.GroupResource{}, err
	}
	return mapping.Resource.GroupResource(), nil
}

// Create creates an object.
func (c *Cluster) Create(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured) error {
	_, err := c.dynamic.Resource(resource).Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

func (c *Cluster) mapping(resource string) (*meta.RESTMapping, error) {
	mapper := restmapper.NewDiscoveryRESTMapper(c.groups)
	full, partial := schema.ParseResourceArg(strings.ToLower(resource))
	asked := partial.WithVersion("")
	asked.Resource = c.long(asked.Resource)
	kind, err := mapper.KindFor(asked)
	if full != nil {
		full.Resource = c.long(full.Resource)
		if found, errFull := mapper.KindFor(*full); errFull == nil {
			kind, err = found, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the API server has no resource %q: kubectl api-resources lists them", resource)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("finding the resource of %s: %w", kind.Kind, err)
	}
	return mapping, nil
}

// long returns the name of a resource for its short name.
func (c *Cluster) long(short string) string {
	for _, g := range c.groups { // in the order of the API server
		for _, list := range g.VersionedResources {
			for i := range list {
				if slices.Contains(list[i].ShortNames, short) {
					return list[i].Name
				}
			}
		}
	}
	return short
}

// Schema returns the schema of a kind from the API server; nil if it has none.
func (c *Cluster) Schema(ctx context.Context, kind schema.GroupVersionKind) managedfields.TypeConverter {
	c.mu.Lock()
	defer c.mu.Unlock()
	gv := kind.GroupVersion()
	found, ok := c.schemas[gv]
	if !ok {
		found, _ = c.readSchemas(ctx, gv) // without them, a mutation reports that they are missing
		c.schemas[gv] = found
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if found == nil {
		return nil
	}
	if _, err := found.ObjectToTyped(object); err != nil {
		return nil
	}
	return found
}

func (c *Cluster) readSchemas(ctx context.Context, gv schema.GroupVersion) (managedfields.TypeConverter, error) {
	paths, err := c.discovery.OpenAPIV3WithContext(ctx).PathsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the list of schemas: %w", err)
	}
	path := "apis/" + gv.String()
	if gv.Group == "" {
		path = "api/" + gv.Version
	}
	entry, ok := paths[path]
	if !ok {
		return nil, fmt.Errorf("the API server has no schemas of %s", gv)
	}
	raw, err := entry.SchemaWithContext(ctx, runtime.ContentTypeJSON)
	if err != nil {
		return nil, fmt.Errorf("reading the schemas of %s: %w", gv, err)
	}
	var document spec3.OpenAPI
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("reading the schemas of %s: %w", gv, err)
	}
	if document.Components == nil {
		return nil, fmt.Errorf("the document of %s has no schemas", gv)
	}
	return managedfields.NewTypeConverter(document.Components.Schemas, false)
}

// User returns the user as whom the API server knows this program.
func (c *Cluster) User(ctx context.Context) (authenticationv1.UserInfo, error) {
	client, err := authenticationclient.NewForConfig(c.config)
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("connecting to the cluster: %w", err)
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("asking the API server for the name of the user: %w: name one with --user", err)
	}
	return review.Status.UserInfo, nil
}

// Authorizer returns an authorizer that asks the API server with SubjectAccessReviews, as
// Ostiary does.
func (c *Cluster) Authorizer() (authorizer.UnconditionalAuthorizer, error) {
	client, err := authorizationclient.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		review, err := client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: accessreview.SpecOf(a)}, metav1.CreateOptions{})
		if err != nil {
			return authorizer.DecisionNoOpinion, "", &accessreview.UnavailableError{Err: err}
		}
		return accessreview.Decide(review.Status)
	}), nil
}
