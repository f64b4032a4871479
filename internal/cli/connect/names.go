package connect

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxNames is the maximum of names that a shell gets.
const maxNames = 500

// Types returns the names of the resources whose objects can be read, without subresources.
func (c *Cluster) Types() (out []string) {
	for _, list := range c.Resources {
		for i := range list {
			if !strings.Contains(list[i].Name, "/") && slices.Contains(list[i].Verbs, "get") {
				out = append(out, list[i].Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Names returns the first names of the objects of a resource, of a namespaced one those in a namespace. It returns none
// if the user may not list them.
func (c *Cluster) Names(ctx context.Context, resource, namespace string) (out []string) {
	mapping, err := c.mapping(resource)
	if err != nil {
		return nil
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = ""
	}
	client := c.dynamic.Resource(mapping.Resource).Namespace(namespace)
	list, err := client.List(ctx, metav1.ListOptions{Limit: maxNames})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		out = append(out, list.Items[i].GetName())
	}
	return out
}
