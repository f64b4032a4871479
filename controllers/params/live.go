package params

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/internal/queue"
)

// live is the client with which the API server's code reads a param that is not in
// the cache. That code limits each read to one second. live also applies the
// deadline of the request, which may be earlier.
type live struct {
	dynamic.Interface
	ctx   context.Context
	watch *watch
}

// Resource implements dynamic.Interface.
func (l live) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return liveResource{NamespaceableResourceInterface: l.Interface.Resource(gvr), live: l}
}

type liveResource struct {
	dynamic.NamespaceableResourceInterface
	live live
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (r liveResource) Namespace(name string) dynamic.ResourceInterface {
	return liveNamespace{ResourceInterface: r.NamespaceableResourceInterface.Namespace(name), live: r.live}
}

// Get implements dynamic.ResourceInterface.
func (r liveResource) Get(_ context.Context, name string, o metav1.GetOptions, sub ...string) (*unstructured.Unstructured, error) {
	return r.live.get(r.NamespaceableResourceInterface, name, o, sub)
}

type liveNamespace struct {
	dynamic.ResourceInterface
	live live
}

// Get implements dynamic.ResourceInterface.
func (n liveNamespace) Get(_ context.Context, name string, o metav1.GetOptions, sub ...string) (*unstructured.Unstructured, error) {
	return n.live.get(n.ResourceInterface, name, o, sub)
}

func (l live) get(from dynamic.ResourceInterface, name string, o metav1.GetOptions, sub []string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(l.ctx, maxWait)
	defer cancel()
	var u *unstructured.Unstructured
	var err error
	queue.Yield(l.ctx, func() { u, err = from.Get(ctx, name, o, sub...) })
	switch {
	case err == nil:
		u.SetManagedFields(nil)
		l.watch.report(ctx, stepGet, nil)
	case apierrors.IsNotFound(err):
		l.watch.report(ctx, stepGet, nil)
	case apierrors.IsForbidden(err):
		l.watch.report(ctx, stepGet, err)
	}
	return u, err
}
