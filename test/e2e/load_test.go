//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	workers = 3
	pause   = 20 * time.Millisecond
)

// guarded is a fail-closed policy about every write of ConfigMaps in namespaces
// with the label e2e: each request needs an answer, or is an error.
const guarded = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: e2e-guarded}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE, DELETE]}
    namespaceSelector: {matchLabels: {e2e: guarded}}
  validations:
  - expression: request.operation == "DELETE" || has(object.data) && object.data.?good.orValue("") == "true"
    message: ` + denied + `
  failurePolicy: Fail
`

// load sends requests without a break, half of them good, and holds each answer
// against the one that is due.
type load struct {
	maps corev1client.ConfigMapInterface
	stop func()

	mu   sync.Mutex
	step *step
}

// startLoad begins in a guarded namespace, and ends with the test at the latest.
func (w *world) startLoad(t *testing.T) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	l := &load{maps: w.client.CoreV1().ConfigMaps(guardedHere), step: &step{name: "start"}}
	l.stop = func() { cancel(); wait.Wait() }
	t.Cleanup(l.stop)
	began := time.Now().Unix() // an earlier load may have left objects of the same number
	for i := range workers {
		wait.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.cycle(ctx, fmt.Sprintf("load-%d-%d-%d", began, i, n))
			}
		})
	}
	return l
}

// cycle is the life of one object, and one that must not live.
func (l *load) cycle(ctx context.Context, name string) {
	good := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"good": "true"}}
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-bad"}}
	_, err := l.maps.Create(ctx, good, metav1.CreateOptions{})
	l.note(ctx, "create", err)
	if err != nil {
		return
	}
	changed := good.DeepCopy()
	changed.Data["more"] = "text"
	_, err = l.maps.Update(ctx, changed, metav1.UpdateOptions{})
	l.note(ctx, "update", err)
	_, err = l.maps.Create(ctx, bad, metav1.CreateOptions{})
	l.note(ctx, "create what is bad", wrongUnlessDenied(err))
	l.note(ctx, "delete", l.maps.Delete(ctx, name, metav1.DeleteOptions{}))
}

func (l *load) note(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		l.mu.Lock()
		l.step.requests++
		if err != nil {
			l.step.failures = append(l.step.failures, time.Now().Format("15:04:05.000")+" "+what+": "+err.Error())
		}
		l.mu.Unlock()
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// during does something under the load, and demands that no request failed.
func (l *load) during(t *testing.T, name string, do func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		start := time.Now()
		s := &step{name: name}
		l.mu.Lock()
		l.step = s
		l.mu.Unlock()
		do(t)
		time.Sleep(2 * time.Second) // what it does to requests, it may do a moment later
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Logf("%d requests, %d failed, in %s", s.requests, len(s.failures), time.Since(start).Round(time.Second))
		for _, problem := range s.problems() {
			t.Error(problem)
		}
	})
}

// guard has a fail-closed policy that is enforced.
func (w *world) guard(t *testing.T) {
	t.Helper()
	w.do(t, guarded, "apply", "-f", "-")
	w.awaitGuarded(t)
}

// awaitGuarded waits until requests are refused for the policy's own reason, and
// would be without an answer.
func (w *world) awaitGuarded(t *testing.T) {
	t.Helper()
	w.do(t, "", "wait", "--for=condition=Ready", "--timeout=180s", "whp/e2e-guarded")
	eventually(t, func() error {
		configs, err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(),
			metav1.ListOptions{LabelSelector: generated})
		if err != nil {
			return err
		}
		for _, config := range configs.Items {
			for _, webhook := range config.Webhooks {
				if strings.HasPrefix(config.Name, "ostiary-validate-") && webhook.FailurePolicy != nil && *webhook.FailurePolicy == "Fail" {
					bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
					_, err := w.client.CoreV1().ConfigMaps(guardedHere).Create(t.Context(), bad, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return wrongUnlessDenied(err)
				}
			}
		}
		return fmt.Errorf("none of %d configurations is fail-closed", len(configs.Items))
	})
}
