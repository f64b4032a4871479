//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace  = "ostiary-system"
	account    = "system:serviceaccount:" + namespace + ":ostiary"
	managers   = "app.kubernetes.io/name=ostiary,app.kubernetes.io/component=manager"
	definition = "webhookpolicies.admission.ostiary.dev"
	generated  = "app.kubernetes.io/managed-by=ostiary"

	timeout  = 3 * time.Minute // for what ordinarily takes seconds
	interval = 250 * time.Millisecond
)

// world is the cluster that the tests run on, and the programs that they use.
type world struct {
	kubeconfig, kubectl, helm string
	manifests                 string // of config/default, rendered
	image                     string
	checks                    string   // image of ./checks; "" when the cluster has none
	auditLog                  string   // "" when it is not at hand
	restart                   []string // command that takes a program's name; nil when there is none
	config                    *rest.Config
	client                    kubernetes.Interface
	leaving                   spans // when Ostiary lost its permissions on purpose
}

// newWorld finds everything in the environment, where `make e2e` puts it.
func newWorld() (*world, error) {
	w := &world{
		kubeconfig: os.Getenv("KUBECONFIG"), kubectl: os.Getenv("E2E_KUBECTL"), helm: os.Getenv("E2E_HELM"),
		manifests: os.Getenv("E2E_MANIFESTS"), image: os.Getenv("E2E_IMAGE"), checks: os.Getenv("E2E_CHECKS"),
		auditLog: os.Getenv("E2E_AUDIT_LOG"), restart: strings.Fields(os.Getenv("E2E_RESTART")),
	}
	for name, value := range map[string]string{
		"KUBECONFIG": w.kubeconfig, "E2E_KUBECTL": w.kubectl, "E2E_HELM": w.helm, "E2E_MANIFESTS": w.manifests, "E2E_IMAGE": w.image,
	} {
		if value == "" {
			return nil, fmt.Errorf("%s is not set: run these tests with `make e2e` or `make e2e-here`", name)
		}
	}
	var err error
	if w.config, err = clientcmd.BuildConfigFromFlags("", w.kubeconfig); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	w.config.QPS = -1
	w.client, err = kubernetes.NewForConfig(w.config)
	return w, err
}

// result is what a command did.
type result struct {
	stdout, stderr string
	err            error
}

func (r result) String() string {
	return strings.TrimSpace(fmt.Sprintf("%v\n%s%s", r.err, r.stdout, r.stderr))
}

func run(ctx context.Context, stdin, name string, args ...string) result {
	ctx, cancel := context.WithTimeout(ctx, 2*timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	return result{out.String(), errs.String(), err}
}

// try runs kubectl, with what it reads from stdin for the argument "-".
func (w *world) try(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return run(t.Context(), stdin, w.kubectl, args...)
}

// do runs kubectl, which has to succeed, and returns what it printed.
func (w *world) do(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := w.try(t, stdin, args...)
	if r.err != nil {
		t.Fatalf("kubectl %s: %s", strings.Join(args, " "), r)
	}
	return r.stdout
}

// pods are those of the manager that are not being stopped.
func (w *world) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: managers})
	if err != nil {
		t.Fatal(err)
	}
	var out []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			out = append(out, pod)
		}
	}
	return out
}

// awaitReplicas waits until that many pods are there, none of them one of those
// that were, and all are ready.
func (w *world) awaitReplicas(t *testing.T, n int, were ...corev1.Pod) {
	t.Helper()
	old := map[string]bool{}
	for _, pod := range were {
		old[pod.Name] = true
	}
	eventually(t, func() error {
		pods := w.pods(t)
		if len(pods) != n {
			return fmt.Errorf("%d pods, want %d", len(pods), n)
		}
		for _, pod := range pods {
			if old[pod.Name] || !ready(&pod) {
				return fmt.Errorf("pod %s is not ready, or one that was there before: %+v", pod.Name, pod.Status.ContainerStatuses)
			}
		}
		return nil
	})
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// makeNamespace makes a namespace that is gone after the test.
func (w *world) makeNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespaces := w.client.CoreV1().Namespaces()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := namespaces.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = namespaces.Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	eventually(t, func() error { // for the account of pods in it
		_, err := w.client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	NewWithT(t).Eventually(check, timeout, interval).Should(Succeed())
}

// expectNotFound makes an error of what is still there.
func expectNotFound(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("it is still there")
	}
	return err
}
