package sources

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/queue"
)

// LiveReadTimeout is the timeout of reads without a cache that k8s.io/apiserver makes
// without the deadline of the request.
const LiveReadTimeout = time.Second

const (
	// maxNamespace limits the labels and annotations of a cached namespace in bytes. The API
	// server accepts 256 KiB of annotations, and any number of labels.
	maxNamespace = 16 << 10
	// largeNamespace is the annotation of a cached namespace whose labels and annotations are
	// left out. A user who sets it makes Ostiary read that namespace for each request.
	largeNamespace = "internal.ostiary.dev/not-cached"
)

// CompactNamespace leaves out of a namespace for the cache what Ostiary does not read. If its
// labels and annotations are large, it leaves them out, too: Namespaces then reads the
// namespace from the API server when a request needs it.
func CompactNamespace(o any) (any, error) {
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return o, nil
	}
	ns.ManagedFields = nil
	size := 0
	for _, values := range []map[string]string{ns.Labels, ns.Annotations} {
		for name, value := range values {
			size += len(name) + len(value)
		}
	}
	if size > maxNamespace {
		ns.ObjectMeta = metav1.ObjectMeta{
			Name: ns.Name, UID: ns.UID, ResourceVersion: ns.ResourceVersion, DeletionTimestamp: ns.DeletionTimestamp,
			Annotations: map[string]string{largeNamespace: ""},
		}
	}
	return ns, nil
}

func isCached(ns *corev1.Namespace) bool {
	_, large := ns.Annotations[largeNamespace]
	return !large
}

// Namespaces finds a namespace in the cache, or else in the API server, because the
// cache may lack a new namespace. ValidatingAdmissionPolicies do the same.
type Namespaces struct {
	Cached, Live client.Reader
}

var _ pluginapi.Namespaces = Namespaces{}

// GetNamespace implements pluginapi.Namespaces.
func (n Namespaces) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := n.get(ctx, name)
	if apierrors.IsNotFound(err) {
		queue.Yield(ctx, func() { err = n.Live.Get(ctx, client.ObjectKey{Name: name}, ns) })
	}
	return ns, err
}

func (n Namespaces) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := n.Cached.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
	if err == nil && !isCached(ns) {
		return &corev1.Namespace{}, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return ns, err
}

// NamespaceLister lists the namespaces of the cache. The matcher that uses it makes
// the live reads itself.
type NamespaceLister struct{ Namespaces }

var _ corelisters.NamespaceLister = NamespaceLister{}

// Get implements corelisters.NamespaceLister.
func (l NamespaceLister) Get(name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(context.Background(), LiveReadTimeout)
	defer cancel()
	return l.get(ctx, name)
}

// List implements corelisters.NamespaceLister.
func (l NamespaceLister) List(selector labels.Selector) ([]*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(context.Background(), LiveReadTimeout)
	defer cancel()
	var list corev1.NamespaceList
	if err := l.Cached.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	out := make([]*corev1.Namespace, len(list.Items))
	for i := range list.Items {
		if !isCached(&list.Items[i]) {
			return nil, fmt.Errorf("the labels of namespace %s are not cached", list.Items[i].Name)
		}
		out[i] = &list.Items[i]
	}
	return out, nil
}
