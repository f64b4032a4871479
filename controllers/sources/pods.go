// Package sources gives evaluations the objects of the cluster that they read
// besides the request.
package sources

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/queue"
)

// Limits of the Pods for one request, as in the API server's PodSecurity plugin.
const (
	maxPods  = 3000
	podsPage = 500
)

// Pods lists the Pods of a namespace from the API server. Policies need them only when
// a label of a namespace changes, so a watch of all Pods would cost more.
type Pods struct {
	client corev1client.PodsGetter
	token  chan struct{} // one namespace is listed at a time
}

// NewPods returns Pods that uses client.
func NewPods(client corev1client.PodsGetter) Pods {
	return Pods{client: client, token: make(chan struct{}, 1)}
}

// PodsIn implements pluginapi.Pods.
func (p Pods) PodsIn(ctx context.Context, namespace string) (out []*corev1.Pod, more int64, err error) {
	queue.Yield(ctx, func() {
		select {
		case p.token <- struct{}{}:
			out, more, err = p.list(ctx, namespace)
			<-p.token
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	return out, more, err
}

func (p Pods) list(ctx context.Context, namespace string) (out []*corev1.Pod, more int64, err error) {
	options := metav1.ListOptions{Limit: podsPage}
	for {
		page, err := p.client.Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, 0, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
		}
		for i := range page.Items {
			pod := &page.Items[i]
			pod.Status, pod.ManagedFields = corev1.PodStatus{}, nil // not read
			out = append(out, pod)
		}
		if options.Continue = page.Continue; page.Continue == "" {
			return out, 0, nil
		}
		if len(out) >= maxPods {
			return out, ptr.Deref(page.RemainingItemCount, 1), nil
		}
	}
}
