package nativeengine

import (
	"cmp"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// stored are the params of a kind. It implements informers.GenericInformer.
type stored struct {
	cache.SharedIndexInformer // nil: nothing but HasSynced is called
	indexer                   cache.Indexer
	resource                  schema.GroupResource
}

// Informer implements informers.GenericInformer.
func (s *stored) Informer() cache.SharedIndexInformer { return s }

// HasSynced implements cache.SharedInformer.
func (s *stored) HasSynced() bool { return true }

// Lister implements informers.GenericInformer.
func (s *stored) Lister() cache.GenericLister { return cache.NewGenericLister(s.indexer, s.resource) }

func newStored(resource schema.GroupResource) *stored {
	return &stored{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), resource: resource}
}

func (s *stored) add(u *unstructured.Unstructured) error {
	if err := s.indexer.Add(u); err != nil {
		return fmt.Errorf("keeping %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// params returns the params of a kind, nil of a kind that is not known. The given param
// replaces them.
func (c *Cluster) params(kind *admissionregistrationv1.ParamKind, only *unstructured.Unstructured) (informers.GenericInformer, meta.RESTScope, error) {
	if kind == nil {
		return nil, nil, nil
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if only != nil {
		s := newStored(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind})
		err := s.add(only)
		return s, meta.RESTScopeRoot, err
	}
	found, err := c.apis.ResourcesOf(gvk)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // the API server reports it when it evaluates the policy
	}
	s := newStored(found[0].GroupResource())
	for i := range c.objects {
		if c.objects[i].GroupVersionKind() != gvk {
			continue
		}
		u, err := decode(c.objects[i].Raw)
		if err != nil {
			return nil, nil, err
		}
		if found[0].Namespaced {
			u.SetNamespace(cmp.Or(u.GetNamespace(), metav1.NamespaceDefault))
		}
		if err := s.add(u); err != nil {
			return nil, nil, err
		}
	}
	if found[0].Namespaced {
		return s, meta.RESTScopeNamespace, nil
	}
	return s, meta.RESTScopeRoot, nil
}

func everything() *metav1.LabelSelector { return &metav1.LabelSelector{} }
