//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// within is how soon after an uninstallation the cluster has to be as before.
const within = time.Minute

// uninstall does something that takes Ostiary away while a fail-closed policy is
// enforced, and demands that nothing that it registered is left, and that no write
// is blocked any more.
func (w *world) uninstall(t *testing.T, do func(*testing.T)) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	do(t)
	blocked := 0
	last := errors.New("the command has ended only now")
	for {
		err := errors.Join(w.nothingGenerated(ctx), w.unblocked(ctx, &blocked))
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%s after it began: %v", within, last)
		}
		last = err
		time.Sleep(interval)
	}
	t.Logf("clean after %s; %d writes were blocked until then", time.Since(start).Round(100*time.Millisecond), blocked)
	w.deleteManifests(t)
	time.Sleep(5 * time.Second) // what is still running could register something again
	// No API server calls them any more, and a drain takes until API servers have closed what they left open.
	w.do(t, "", "-n", namespace, "delete", "pods", "-l", managers, "--grace-period=0", "--force", "--ignore-not-found")
	w.awaitGone(t)
	if err := errors.Join(w.nothingGenerated(t.Context()), w.unblocked(t.Context(), &blocked)); err != nil {
		t.Errorf("it came back: %v", err)
	}
	w.leaving.add(start)
}

func (w *world) nothingGenerated(ctx context.Context) error {
	configs := w.client.AdmissionregistrationV1()
	validating, err := configs.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{LabelSelector: generated})
	if err != nil {
		return err
	}
	mutating, err := configs.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{LabelSelector: generated})
	if err != nil {
		return err
	}
	if n := len(validating.Items) + len(mutating.Items); n > 0 {
		return fmt.Errorf("%d generated configurations are left", n)
	}
	return nil
}

// unblocked writes what the policy refused, and removes it.
func (w *world) unblocked(ctx context.Context, blocked *int) error {
	maps := w.client.CoreV1().ConfigMaps(guardedHere)
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}
	_, err := maps.Create(ctx, probe, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		if apierrors.IsInternalError(err) {
			*blocked++
		}
		return fmt.Errorf("a write is still refused: %w", err)
	}
	if err := maps.Delete(ctx, probe.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("a write is still refused: %w", err)
	}
	return nil
}

// deleteDefinition deletes what policies are, and with them all policies, before
// the rest: in between, nothing is refused any more.
func (w *world) deleteDefinition(t *testing.T) {
	w.do(t, "", "delete", "crd", definition, "--wait=false")
	eventually(t, func() error {
		blocked := 0
		return w.unblocked(t.Context(), &blocked)
	})
	w.deleteManifests(t)
}

// kill ends every replica at once, without a chance to clean up, and keeps it so.
func (w *world) kill(t *testing.T) {
	t.Helper()
	w.do(t, "", "-n", namespace, "scale", "deployment/ostiary", "--replicas=0")
	w.do(t, "", "-n", namespace, "delete", "pods", "-l", managers, "--grace-period=0", "--force")
	eventually(t, func() error {
		list, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: managers})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
	eventually(t, func() error { // it is dead only when it does not answer
		good := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "good"}, Data: map[string]string{"good": "true"}}
		_, err := w.client.CoreV1().ConfigMaps(guardedHere).Create(t.Context(), good, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInternalError(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("a request without an answer: %w, want that its webhook failed", err)
		}
		return errors.New("a request without an answer was let pass")
	})
}
