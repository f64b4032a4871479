//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// rendered returns install.yaml with the image under test, and further flags. In
// the short form, replicas drain for 20 s at most instead of 110 s.
func (w *world) rendered(t *testing.T, flags ...string) string {
	t.Helper()
	if testing.Short() {
		flags = append([]string{"--drain-max=20s"}, flags...)
	}
	content, err := os.ReadFile(w.manifests)
	if err != nil {
		t.Fatal(err)
	}
	return w.withImage(t, string(content), flags...)
}

func (w *world) withImage(t *testing.T, manifests string, flags ...string) string {
	t.Helper()
	var out bytes.Buffer
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatal(err)
		}
		w.amend(t, object, flags)
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return out.String()
}

// amend gives what runs pods the image under test; of a flag that is given twice
// the last holds.
func (w *world) amend(t *testing.T, object *unstructured.Unstructured, flags []string) {
	t.Helper()
	containers, found, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return
	}
	for _, c := range containers {
		container := c.(map[string]any)
		container["image"] = w.image
		for _, flag := range flags {
			args, _ := container["args"].([]any)
			container["args"] = append(args, flag)
		}
	}
	if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
}

// applyManifests installs, or upgrades, with kubectl. The API server has nothing
// to warn about, of pod security neither.
func (w *world) applyManifests(t *testing.T, flags ...string) {
	t.Helper()
	w.apply(t, w.rendered(t, flags...))
}

func (w *world) apply(t *testing.T, manifests string) {
	t.Helper()
	r := w.try(t, manifests, "apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-")
	if r.err != nil || r.stderr != "" {
		t.Fatalf("applying the manifests: %s", r)
	}
	w.do(t, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/"+definition)
	w.awaitRollout(t)
}

// installAsDocumented types what the documents say of kubectl.
func (w *world) installAsDocumented(t *testing.T) {
	if w.image != documentedImage {
		w.applyManifests(t)
		t.Skipf("the documents' commands install %s, not %s", documentedImage, w.image)
	}
	const page = "docs/operations/install.md"
	out := w.follow(t, commands(t, "README.md", "Install it", "kubectl"), commands(t, page, "With kustomize", "kubectl"),
		commands(t, page, "Test the installation", "kubectl"))
	if strings.Contains(out, "Warning") || !strings.Contains(out, "Ostiary works: ") {
		t.Error("a warning, or no result of the self-test")
	}
}

// deleteAsDocumented types what takes away what installAsDocumented installed.
func (w *world) deleteAsDocumented(t *testing.T) {
	const command = "kubectl delete -f https://github.com/ostiary/ostiary/releases/download/v0.1.0/install.yaml"
	if !strings.Contains(section(t, "docs/operations/install.md", "Uninstalling"), "| `"+command+"` |") {
		t.Errorf("the document does not say %s", command)
	}
	w.follow(t, []string{command})
}

// installProduction installs config/production, but for what needs the Prometheus
// operator. The node's network does not know NetworkPolicies: this one is taken
// by the API server, and not enforced here.
func (w *world) installProduction(t *testing.T) {
	r := run(t.Context(), "", w.kubectl, "kustomize", filepath.Join(root, "config", "production"))
	if r.err != nil {
		t.Fatal(r)
	}
	documents := slices.DeleteFunc(strings.Split(r.stdout, "\n---\n"), func(document string) bool {
		return strings.Contains(document, "apiVersion: monitoring.coreos.com/")
	})
	w.apply(t, w.withImage(t, strings.Join(documents, "\n---\n")))
	w.awaitReplicas(t, 3)
	if _, err := w.client.NetworkingV1().NetworkPolicies(namespace).Get(t.Context(), "ostiary", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	pods := w.pods(t)
	evict := func(pod corev1.Pod) error {
		return w.client.PolicyV1().Evictions(namespace).Evict(t.Context(),
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: namespace}})
	}
	eventually(t, func() error { return evict(pods[0]) }) // the budget learns of ready pods a moment later
	if err := evict(pods[1]); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evicting a second of three replicas: %v, want the budget to refuse that", err)
	}
	w.awaitReplicas(t, 3, pods[0])
}

func (w *world) awaitRollout(t *testing.T) {
	t.Helper()
	if r := w.try(t, "", "-n", namespace, "rollout", "status", "deployment/ostiary", "--timeout=180s"); r.err != nil {
		t.Fatalf("%s\n%s", r, w.try(t, "", "-n", namespace, "describe", "pods"))
	}
}

// selfTest runs the Job of config/self-test, and removes it.
func (w *world) selfTest(t *testing.T) {
	r := run(t.Context(), "", w.kubectl, "kustomize", filepath.Join(root, "config", "self-test"))
	if r.err != nil {
		t.Fatal(r)
	}
	job := w.withImage(t, r.stdout)
	if r := w.try(t, job, "apply", "-f", "-"); r.err != nil || r.stderr != "" {
		t.Fatalf("applying the self-test: %s", r)
	}
	r = w.try(t, "", "-n", namespace, "wait", "--for=condition=Complete", "--timeout=180s", "job/ostiary-self-test")
	log := w.try(t, "", "-n", namespace, "logs", "job/ostiary-self-test")
	if r.err != nil || strings.Count(log.stdout, "\n") != 1 {
		t.Errorf("%s: it said:\n%s\nwant one line", r, log)
	}
	t.Log(strings.TrimSpace(log.stdout))
	w.do(t, job, "delete", "-f", "-")
}

// deleteManifests removes what is left of an installation, in the order of the file.
func (w *world) deleteManifests(t *testing.T) {
	t.Helper()
	w.do(t, w.rendered(t), "delete", "--ignore-not-found", "--wait=false", "-f", "-")
}

// root is that of the repository.
const root = "../.."

func sample(name string) string { return filepath.Join(root, "config", "samples", name) }

// wantRestricted checks that pod security is enforced where the manager runs, at
// its strictest, and not only asked for.
func (w *world) wantRestricted(t *testing.T) {
	t.Helper()
	r := w.try(t, "", "-n", namespace, "run", "privileged", "--image="+w.image, "--privileged", "--dry-run=server")
	if r.err == nil || !strings.Contains(r.stderr, `violates PodSecurity "restricted`) {
		t.Errorf("a privileged pod in %s: %s: want it refused by pod security", namespace, r)
	}
}

// awaitGone waits until nothing is left of an installation.
func (w *world) awaitGone(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		_, err := w.client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return expectNotFound(err)
	})
	eventually(t, func() error {
		r := w.try(t, "", "get", "crd,clusterrole,clusterrolebinding,role,rolebinding,deployment,validatingadmissionpolicy,validatingadmissionpolicybinding,validatingwebhookconfiguration,mutatingwebhookconfiguration", "-A", "-o", "name")
		if r.err != nil {
			return r.err
		}
		left := slices.DeleteFunc(strings.Fields(r.stdout), func(name string) bool { return !strings.Contains(name, "ostiary") })
		if len(left) > 0 {
			return fmt.Errorf("left: %s", strings.Join(left, " "))
		}
		return nil
	})
}
