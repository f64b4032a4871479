package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// fetchObjects reads the objects of a cluster that sources own. It calls skipped for what the user
// may not read.
func fetchObjects(
	ctx context.Context,
	config *rest.Config,
	using []conversion.Source,
	skipped func(error),
) ([]load.Object, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	resources, err := ownedResources(ctx, config, using)
	if err != nil {
		return nil, err
	}
	var out []load.Object
	for _, r := range resources {
		err := listObjects(ctx, client, r, &out)
		switch {
		case apierrors.IsForbidden(err):
			skipped(err)
		case err != nil:
			return nil, err
		}
	}
	return out, nil
}

// ownedResources returns the resources that sources own, each in the preferred version of its group,
// in the order of names.
func ownedResources(
	ctx context.Context,
	config *rest.Config,
	using []conversion.Source,
) ([]schema.GroupVersionResource, error) {
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	groups, lists, err := server.ServerGroupsAndResourcesWithContext(ctx)
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &failed) {
		return nil, fmt.Errorf("reading the resources of the API server: %w", err)
	}
	versions := map[string]int{}
	for _, g := range groups {
		for i, v := range g.Versions { // in the order of preference
			versions[v.GroupVersion] = i
		}
	}
	best := map[schema.GroupResource]schema.GroupVersionResource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			kind := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			if strings.Contains(r.Name, "/") ||
				!slices.ContainsFunc(using, func(s conversion.Source) bool { return s.Owns(kind) }) {
				continue
			}
			resource := gv.WithResource(r.Name)
			if other, ok := best[resource.GroupResource()]; !ok ||
				versions[gv.String()] < versions[other.GroupVersion().String()] {
				best[resource.GroupResource()] = resource
			}
		}
	}
	var out []schema.GroupVersionResource
	for _, r := range best {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// listObjects adds all objects of a resource.
func listObjects(
	ctx context.Context,
	client dynamic.Interface,
	r schema.GroupVersionResource,
	out *[]load.Object,
) error {
	all := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.Resource(r).List(ctx, o)
	})
	err := all.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		item, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("unexpected %T", o)
		}
		raw, err := item.MarshalJSON()
		if err != nil {
			return fmt.Errorf("reading %s %q: %w", item.GetKind(), item.GetName(), err)
		}
		name := r.Resource + "/" + item.GetName()
		if item.GetNamespace() != "" {
			name = r.Resource + "/" + item.GetNamespace() + "/" + item.GetName()
		}
		text, err := yaml.JSONToYAML(raw) // results have the style of their source
		if err != nil {
			return fmt.Errorf("reading %s %q: %w", item.GetKind(), item.GetName(), err)
		}
		objects, err := load.Text(ctx, name, text)
		*out = append(*out, objects...)
		return err
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", r.GroupResource(), err)
	}
	return nil
}
