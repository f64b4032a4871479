package sources

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/queue"
)

// LiveReadTimeout is the timeout of reads without a cache that k8s.io/apiserver makes
// without the deadline of the request.
const LiveReadTimeout = time.Second

// Namespaces finds a namespace in the cache, or else in the API server, because the
// cache may lack a new namespace. ValidatingAdmissionPolicies do the same.
type Namespaces struct {
	Cached, Live client.Reader
}

var _ policy.Namespaces = Namespaces{}

// GetNamespace implements policy.Namespaces.
func (n Namespaces) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := n.get(ctx, name)
	if apierrors.IsNotFound(err) {
		queue.Yield(ctx, func() { err = n.Live.Get(ctx, client.ObjectKey{Name: name}, ns) })
	}
	return ns, err
}

func (n Namespaces) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	return ns, n.Cached.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
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
		out[i] = &list.Items[i]
	}
	return out, nil
}
