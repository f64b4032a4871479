package nativeengine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// NewParams returns objects as the params of policies.
func NewParams(
	resource schema.GroupResource,
	objects ...*unstructured.Unstructured,
) (informers.GenericInformer, error) {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	s := &storedParams{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers), resource: resource}
	for _, o := range objects {
		if err := s.indexer.Add(o); err != nil {
			return nil, fmt.Errorf("keeping %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return s, nil
}

// storedParams are the params of a kind. They implement informers.GenericInformer.
type storedParams struct {
	cache.SharedIndexInformer // nil: nothing but HasSynced is called
	indexer                   cache.Indexer
	resource                  schema.GroupResource
}

// Informer implements informers.GenericInformer.
func (s *storedParams) Informer() cache.SharedIndexInformer { return s }

// HasSynced implements cache.SharedInformer.
func (s *storedParams) HasSynced() bool { return true }

// Lister implements informers.GenericInformer.
func (s *storedParams) Lister() cache.GenericLister {
	return cache.NewGenericLister(s.indexer, s.resource)
}
