//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
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

// chartArguments name the chart and the image under test, and wait for the result.
func (w *world) chartArguments() []string {
	return append(w.chart(), "--wait", "--timeout=5m")
}

func (w *world) chart() []string {
	return append([]string{release, filepath.Join(root, "charts", "ostiary")}, w.imageValues()...)
}

// imageValues are for another image than the chart's own.
func (w *world) imageValues() []string {
	if w.image == documentedImage {
		return nil
	}
	repository, tag := w.image, "latest"
	if i := strings.LastIndex(w.image, ":"); i > strings.LastIndex(w.image, "/") {
		repository, tag = w.image[:i], w.image[i+1:]
	}
	return []string{"--set=image.registry=", "--set=image.repository=" + repository, "--set=image.tag=" + tag}
}

// testBadValues has Helm refuse values before anything is installed.
func (w *world) testBadValues(t *testing.T) {
	for name, tt := range map[string]struct{ set, want string }{
		"an unknown key": {set: "replica=2", want: "additional properties 'replica' not allowed"},
		"a wrong type":   {set: "replicas=two", want: "got string, want integer"},
		"no replicas":    {set: "replicas=0", want: "minimum: got 0, want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t.Context(), "", w.helm, append([]string{"install", "--create-namespace", "--set=" + tt.set}, w.chartArguments()...)...)
			if r.err == nil || !strings.Contains(r.stderr, tt.want) {
				t.Errorf("%s: want it refused, with %q", r, tt.want)
			}
			if r := w.try(t, "", "get", "namespace", namespace); r.err == nil {
				t.Errorf("half of it was done: %s", r)
			}
		})
	}
}

// installChart types what the documents say, the test of the release among it. Pod
// security is enforced last, when Kubernetes holds against it what runs already.
func (w *world) installChart(t *testing.T) {
	t.Helper()
	const page = "docs/operations/install.md"
	out := w.follow(t, commands(t, "README.md", "Install it", "helm"), commands(t, page, "With Helm", "helm"),
		commands(t, page, "With Helm", "kubectl"))
	if strings.Contains(out, "Warning") || !strings.Contains(out, "Ostiary works: ") {
		t.Error("a warning, or no result of the self-test")
	}
	w.guard(t)
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
	l.during(t, "upgrade to replicas that cannot serve", w.testUnready)
	l.during(t, "rollback of that", func(t *testing.T) {
		w.helmDo(t, "rollback", release, "--wait", "--timeout=5m")
		w.awaitReplicas(t, 2)
	})
	l.during(t, "last replicas end", w.awaitNoneTerminating)
	l.stop()
}

// testUnready has a new replica wait for a certificate with a name that nobody
// asks for: it runs, and is not called, so those before it stay.
func (w *world) testUnready(t *testing.T) {
	before := w.pods(t)
	w.helmDo(t, append([]string{"upgrade", "--set=manager.webhookService=" + namespace + "/ostiary-elsewhere:443"}, w.chart()...)...)
	fresh := func() *corev1.Pod {
		for _, pod := range w.pods(t) {
			if !slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.Name == pod.Name }) {
				return &pod
			}
		}
		return nil
	}
	eventually(t, func() error {
		pod := fresh()
		if pod == nil || len(pod.Status.ContainerStatuses) == 0 || !ptr.Deref(pod.Status.ContainerStatuses[0].Started, false) {
			return fmt.Errorf("there is no new replica that runs: %+v", pod)
		}
		return nil
	})
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Second) { // five times as long as probes are apart
		if pod := fresh(); pod == nil || ready(pod) {
			t.Fatalf("a replica without a certificate of its name is ready: its readiness probe does not ask for that: %+v", pod)
		}
	}
	if now := w.pods(t); len(now) != len(before)+1 {
		t.Errorf("%d replicas beside one that is not ready, want %d", len(now)-1, len(before))
	}
}

// uninstallChart leaves the definition of policies, and them, as the chart says.
func (w *world) uninstallChart(t *testing.T) {
	w.helmDo(t, "uninstall", release, "--wait", "--timeout=5m")
	if out := w.do(t, "", "get", "whp", "-o", "name"); !strings.Contains(out, "e2e-guarded") {
		t.Errorf("policies %q: want them kept", out)
	}
}
