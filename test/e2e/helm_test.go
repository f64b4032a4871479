//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const release = "ostiary"

// helmDo runs helm, which has to succeed, and returns what it printed.
func (w *world) helmDo(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t.Context(), "", w.helm, append(args, "--kubeconfig", w.kubeconfig, "--namespace", namespace)...)
	if r.err != nil {
		t.Fatalf("helm %s: %s\n%s", strings.Join(args, " "), r, w.try(t, "", "-n", namespace, "get", "pods,jobs,events"))
	}
	return r.stdout + r.stderr
}

// chartArguments name the chart and the image under test.
func (w *world) chartArguments() []string {
	repository, tag := w.image, "latest"
	if i := strings.LastIndex(w.image, ":"); i > strings.LastIndex(w.image, "/") {
		repository, tag = w.image[:i], w.image[i+1:]
	}
	return []string{release, filepath.Join(root, "charts", "ostiary"), "--wait", "--timeout=5m",
		"--set=image.repository=" + repository, "--set=image.tag=" + tag}
}

// installChart installs as its notes say, with pod security enforced from the
// start, so that nothing of the chart may need more.
func (w *world) installChart(t *testing.T) {
	t.Helper()
	labels := map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out := w.helmDo(t, append([]string{"install"}, w.chartArguments()...)...)
	if strings.Contains(out, "would violate PodSecurity") {
		t.Errorf("pod security is not kept:\n%s", out)
	}
	w.do(t, guarded, "apply", "-f", "-")
	w.awaitGuarded(t)
}

func (w *world) testChart(t *testing.T) {
	out := w.helmDo(t, "test", release, "--logs", "--timeout=3m")
	if !strings.Contains(out, "Succeeded") {
		t.Errorf("it printed:\n%s", out)
	}
	t.Log(out)
}

// testChartUpgrade changes values under load: a flag, the number of replicas, and
// back to what the release was before.
func (w *world) testChartUpgrade(t *testing.T) {
	l := w.startLoad(t)
	l.during(t, "at rest", func(*testing.T) { time.Sleep(3 * time.Second) })
	l.during(t, "upgrade with changed values", func(t *testing.T) {
		w.helmDo(t, append([]string{"upgrade", "--set=manager.logLevel=debug,replicas=3"}, w.chartArguments()...)...)
		w.awaitReplicas(t, 3)
	})
	l.during(t, "rollback", func(t *testing.T) {
		w.helmDo(t, "rollback", release, "--wait", "--timeout=5m")
		w.awaitReplicas(t, 2)
	})
	l.during(t, "last replicas end", w.awaitNoneTerminating)
	l.stop()
}

// uninstallChart leaves the definition of policies, and them, as the chart says.
func (w *world) uninstallChart(t *testing.T) {
	w.helmDo(t, "uninstall", release, "--wait", "--timeout=5m")
	if out := w.do(t, "", "get", "whp", "-o", "name"); !strings.Contains(out, "e2e-guarded") {
		t.Errorf("policies %q: want them kept", out)
	}
}
