package offline

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/sensitive"
)

// indexed says which objects an index has.
type indexed struct {
	lookups.Definition
	namespace string // of the cluster; "" for all objects
}

// Lookup implements policy.Lookups.
func (w *World) Lookup(ctx context.Context, p *lookups.Program, q lookups.Query) (lookups.Result, error) {
	x, err := w.index(ctx, p, q.Namespace)
	if err != nil {
		return lookups.Result{}, err
	}
	return x.Find(q)
}

// index returns the index of a definition: of the objects of files and, with a cluster, of those that it has now in the
// namespace of the request, or in all.
func (w *World) index(ctx context.Context, p *lookups.Program, namespace string) (*lookups.Index, error) {
	kind, resource, err := w.apis.lookedUp(&v1alpha1.LookupResource{Group: p.Group, Version: p.Version, Resource: p.Resource})
	if err != nil {
		return nil, err
	}
	key := indexed{Definition: p.Definition}
	l := listing{kind: kind, everywhere: w.cluster != nil && p.Scope == v1alpha1.LookupScopeCluster}
	if w.cluster != nil && resource.Namespaced && !l.everywhere {
		key.namespace, l.namespace = namespace, namespace
	}
	if found := w.known(key); found != nil {
		return found, nil
	}
	if err := w.checkVersions(kind); err != nil {
		return nil, err
	}
	objects, err := w.list(ctx, l, resource)
	if err != nil {
		return nil, err
	}
	x := newIndex(ctx, p, objects)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.indexes[key] = x
	return x, nil
}

func (w *World) known(key indexed) *lookups.Index {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.indexes[key]
}

// newIndex returns an index of objects. Those of sensitive kinds have only metadata, as in a cluster.
func newIndex(ctx context.Context, p *lookups.Program, objects *stored) *lookups.Index {
	x := lookups.NewIndex(p.Definition, lookups.Limits{})
	onlyMetadata := sensitive.Resources{}.Contains(objects.resource.GroupResource(), "")
	x.Update(func(c *lookups.Changes) {
		for _, o := range objects.indexer.List() {
			u, _ := o.(*unstructured.Unstructured) // list stores nothing else
			ref := lookups.Ref{UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName()}
			if ref.UID == "" { // of an object in a file
				ref.UID = ref.Namespace + "/" + ref.Name
			}
			content := u.Object
			if onlyMetadata {
				content = map[string]any{"apiVersion": content["apiVersion"], "kind": content["kind"], "metadata": content["metadata"]}
			}
			if entry, err := p.Entry(ctx, content); err != nil {
				c.Fail(ref, err)
			} else {
				c.Put(ref, entry)
			}
		}
	})
	return x
}

// checkVersions returns an error if files have objects of the kind in another version, which this program does not
// convert.
func (w *World) checkVersions(kind schema.GroupVersionKind) error {
	for i := range w.objects {
		if o := &w.objects[i]; o.GroupVersionKind().GroupKind() == kind.GroupKind() && o.GroupVersionKind().Version != kind.Version {
			return fmt.Errorf("the lookup reads %s, and %s is in %s: an API server converts it, this program cannot; "+
				"give the object in that version", kind.GroupVersion(), o.String(), o.APIVersion)
		}
	}
	return nil
}

// HasObjects reports whether files or a cluster can have objects of a resource.
func (w *World) HasObjects(r *v1alpha1.LookupResource) bool {
	kind, _, err := w.apis.lookedUp(r)
	if err != nil || w.cluster != nil {
		return err == nil
	}
	for i := range w.objects {
		if w.objects[i].GroupVersionKind().GroupKind() == kind.GroupKind() {
			return true
		}
	}
	return false
}

// lookedUp returns the kind of the objects of a lookup.
func (a *APIs) lookedUp(r *v1alpha1.LookupResource) (schema.GroupVersionKind, pluginapi.KindResource, error) {
	gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
	for _, served := range a.Lists()[gv] {
		if served.Name == r.Resource && !strings.Contains(served.Name, "/") {
			found := pluginapi.KindResource{GroupVersionResource: gv.WithResource(served.Name), Namespaced: served.Namespaced}
			return gv.WithKind(served.Kind), found, nil
		}
	}
	return schema.GroupVersionKind{}, pluginapi.KindResource{}, fmt.Errorf(
		"the resource %s of the lookup in %s is not known: add its CustomResourceDefinition to the files, or correct it", r.Resource, gv)
}
