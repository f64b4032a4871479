package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/queue"
)

// Bounds on the Pods that are read for one request: as many as the API server's
// own plugin looks at.
const (
	maxPods  = 3000
	podsPage = 500
)

// pods asks the API server for Pods, one namespace at a time: watching all of
// them would cost more than their namespaces' labels change.
type pods struct {
	client corev1client.PodsGetter
	turn   chan struct{}
}

func newPods(client corev1client.PodsGetter) pods {
	return pods{client: client, turn: make(chan struct{}, 1)}
}

// PodsIn implements policy.Pods.
func (p pods) PodsIn(ctx context.Context, namespace string) (out []*corev1.Pod, more int64, err error) {
	queue.Yield(ctx, func() {
		select {
		case p.turn <- struct{}{}:
			out, more, err = p.list(ctx, namespace)
			<-p.turn
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	return out, more, err
}

func (p pods) list(ctx context.Context, namespace string) (out []*corev1.Pod, more int64, err error) {
	options := metav1.ListOptions{Limit: podsPage}
	for {
		page, err := p.client.Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, 0, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
		}
		for i := range page.Items {
			pod := &page.Items[i]
			pod.Status, pod.ManagedFields = corev1.PodStatus{}, nil // nobody looks at them
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
