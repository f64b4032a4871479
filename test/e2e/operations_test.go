//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testOperations does what administrators do to a running installation, under load.
func (w *world) testOperations(t *testing.T) {
	l := w.startLoad(t)
	l.during(t, "at rest", func(*testing.T) { time.Sleep(3 * time.Second) })
	// When all pods are deleted at once, a new one has to be ready while the old ones are, which is
	// half of this time. A busy machine starts none in the half of the default.
	flags := []string{"--log-level=debug", "--drain-min=40s", "--drain-max=45s"}
	l.during(t, "upgrade with changed flags", func(t *testing.T) { w.applyManifests(t, flags...) })
	for _, n := range []int{3, 1, 3} {
		l.during(t, fmt.Sprintf("scale to %d", n), func(t *testing.T) { w.scale(t, n) })
	}
	l.during(t, "delete a pod", func(t *testing.T) {
		pod := w.pods(t)[0]
		w.deletePods(t, pod)
		w.awaitReplicas(t, 3, pod)
	})
	l.during(t, "delete all pods at once", func(t *testing.T) {
		pods := w.pods(t)
		w.deletePods(t, pods...)
		w.awaitReplicas(t, 3, pods...)
	})
	l.during(t, "drain through eviction", w.evictAll)
	if !testing.Short() {
		for _, program := range []string{"kubelet", "containerd"} {
			l.during(t, "restart "+program, func(t *testing.T) { w.restartProgram(t, program) })
		}
	}
	l.during(t, "last replicas end", w.awaitNoneTerminating)
	l.stop()
}

func (w *world) scale(t *testing.T, n int) {
	w.do(t, "", "-n", namespace, "scale", "deployment/ostiary", fmt.Sprintf("--replicas=%d", n))
	w.awaitReplicas(t, n)
}

func (w *world) deletePods(t *testing.T, pods ...corev1.Pod) {
	for _, pod := range pods {
		if err := w.client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// evictAll evicts one pod after the other, as kubectl drain does: what the
// PodDisruptionBudget refuses is tried again.
func (w *world) evictAll(t *testing.T) {
	pods := w.pods(t)
	for _, pod := range pods {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: namespace}}
		refused := 0
		eventually(t, func() error {
			err := w.client.PolicyV1().Evictions(namespace).Evict(t.Context(), eviction)
			if apierrors.IsTooManyRequests(err) {
				refused++
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		t.Logf("evicted %s, after %d refusals", pod.Name, refused)
	}
	w.awaitReplicas(t, len(pods), pods...)
}

// restartProgram restarts a program of the node, which its pods outlive.
func (w *world) restartProgram(t *testing.T, program string) {
	if w.restart == nil {
		t.Skipf("E2E_RESTART is not set: no %s to restart on this cluster", program)
	}
	before := w.pods(t)
	if r := run(t.Context(), "", w.restart[0], append(w.restart[1:], program)...); r.err != nil {
		t.Fatalf("restarting %s: %s", program, r)
	}
	time.Sleep(12 * time.Second) // the kubelet looks at all pods, and reports the node, every ten
	w.awaitReplicas(t, len(before))
	for i, pod := range w.pods(t) {
		if n := pod.Status.ContainerStatuses[0].RestartCount; n > 0 {
			t.Errorf("pod %d, %s, was restarted %d times", i, pod.Name, n)
		}
	}
}

// awaitNoneTerminating waits until every terminating replica has ended.
func (w *world) awaitNoneTerminating(t *testing.T) {
	eventually(t, func() error {
		list, err := w.client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: managers})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if pod.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is still being stopped", pod.Name)
			}
		}
		return nil
	})
}
