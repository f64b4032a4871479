//go:build flux

package flux

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/manager"
)

const (
	root      = "../.."
	patience  = 5 * time.Minute
	namespace = "flux-system"
	gitOps    = root + "/docs/operations/gitops.md"
	tutorial  = root + "/docs/tutorials/first-policy.md"
)

// make flux-check builds these programs.
var (
	kustomizeController = flag.String("kustomize-controller", "", "Flux's kustomize-controller")
	definition          = flag.String("definition", "", "the CustomResourceDefinition of Kustomizations")
	ostiary             = flag.String("ostiary", "", "the manager")
)

// notReady is a policy that waits for its params.
const notReady = `
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: without-params}
spec:
  paramKind: {apiVersion: example.com/v1, kind: Team}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  validations: [{expression: params.metadata.name != "", message: name the team}]
  bindings: [{name: all, paramRef: {name: team, parameterNotFoundAction: Deny}, validationActions: [Deny]}]
`

// cluster is a control plane with Ostiary and Flux's kustomize-controller.
type cluster struct {
	*WithT
	client.Client
	t       *testing.T
	kubectl []string
	git     *Repository
}

// TestFlux applies the objects of the document: the policies wait for the release, are ready when they are enforced, not while one
// waits for its params, and disappear with their files.
func TestFlux(t *testing.T) {
	c := start(t)
	release, kustomizations := block(t, gitOps, "ostiary/release.yaml"), block(t, gitOps, "flux.yaml")
	first := map[string]string{"ostiary/release.yaml": release, "policies/require-owner.yaml": block(t, tutorial, "require-owner.yaml")}
	c.commit(first)
	c.apply(kustomizations)

	c.awaitReady("ostiary", Equal("Unknown")) // it waits for the release
	c.awaitReady("policies", Equal("False"))
	c.Expect(c.reason("policies")).To(Equal("DependencyNotReady"))
	c.Expect(c.run("get", "whp", "-o", "name")).To(BeEmpty())
	c.setStatus("helm.toolkit.fluxcd.io/v2", "HelmRelease", "ostiary", map[string]any{
		"observedGeneration": int64(1), "conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "InstallSucceeded", "message": "", "lastTransitionTime": "2026-06-01T12:00:00Z",
		}},
	})
	c.awaitReady("policies", Equal("True"))
	c.Expect(c.run("run", "web", "--image=nginx:1.29")).To(ContainSubstring("WebhookPolicy 'require-owner' denied request: add the label owner"))

	c.patch("policies", `{"spec":{"timeout":"10s","retryInterval":"5s"}}`)
	c.commit(map[string]string{"ostiary/release.yaml": release, "policies/require-owner.yaml": first["policies/require-owner.yaml"],
		"policies/without-params.yaml": notReady})
	c.Eventually(func() string { return c.reason("policies") }).WithTimeout(patience).Should(Equal("HealthCheckFailed"))
	c.Expect(c.message("policies")).To(ContainSubstring("without-params"))

	c.commit(map[string]string{"ostiary/release.yaml": release, "policies/kustomization.yaml": "resources: []\n"})
	c.Eventually(func() string { return c.run("get", "whp", "-o", "name") }).WithTimeout(patience).Should(BeEmpty())
	c.Eventually(func() string { return c.run("run", "web", "--image=nginx:1.29") }).WithTimeout(patience).Should(ContainSubstring("created"))
}

func start(t *testing.T) *cluster {
	t.Helper()
	for name, path := range map[string]*string{"-kustomize-controller": kustomizeController, "-definition": definition, "-ostiary": ostiary} {
		if *path == "" {
			t.Fatalf("%s is missing: run make flux-check", name)
		}
	}
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{WithT: NewWithT(t), t: t, kubectl: []string{cp.Kubectl(), "--kubeconfig=" + cp.Kubeconfig()}, git: ServeRepository()}
	t.Cleanup(func() {
		c.git.Close()
		if t.Failed() {
			t.Log(cp.LogTails())
		}
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	if c.Client, err = client.New(cp.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"crd", "namespace", "rbac"} {
		c.mustRun("apply", "-k", root+"/config/"+folder)
	}
	c.mustRun("apply", "-f", *definition, "-f", "testdata/definitions.yaml")
	c.mustRun("wait", "--for=condition=Established", "crd", "--all", "--timeout=3m")
	c.run("create", "namespace", namespace)
	c.startPrograms(cp)
	c.apply("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: fleet, namespace: flux-system}\nspec: {interval: 1m}\n")
	return c
}

func (c *cluster) startPrograms(cp *controlplane.ControlPlane) {
	c.t.Helper()
	program, err := filepath.Abs(*kustomizeController)
	if err != nil {
		c.t.Fatal(err)
	}
	running, err := manager.Start(c.t.Context(), cp, manager.Options{Path: *ostiary})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = running.Stop() }) // the control plane ends it otherwise
	controller, err := cp.Run(c.t.Context(), controlplane.Program{
		Name: "kustomize-controller", Path: program, Ports: 2, Env: []string{"KUBECONFIG=" + cp.Kubeconfig(), "RUNTIME_NAMESPACE=" + namespace},
		Args: func(ports []int) []string {
			return []string{"--metrics-addr=" + loopback(ports[0]), "--health-addr=" + loopback(ports[1]), "--requeue-dependency=1s"}
		},
		Probes: func(ports []int) []string { return []string{"http://" + loopback(ports[1]) + "/readyz"} },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = controller.Stop() })
}

// commit makes files the current revision of the repository, as source-controller would.
func (c *cluster) commit(files map[string]string) {
	c.t.Helper()
	artifact, err := c.git.Commit(files)
	c.Expect(err).NotTo(HaveOccurred())
	c.setStatus("source.toolkit.fluxcd.io/v1", "GitRepository", "fleet", map[string]any{"artifact": artifact, "observedGeneration": int64(1)})
}

// setStatus writes the status of an object when it exists.
func (c *cluster) setStatus(apiVersion, kind, name string, status map[string]any) {
	c.t.Helper()
	c.Eventually(func(g Gomega, ctx context.Context) {
		object := c.get(g, apiVersion, kind, name)
		object.Object["status"] = status
		g.Expect(c.Status().Update(ctx, object)).To(Succeed())
	}).WithContext(c.t.Context()).WithTimeout(patience).Should(Succeed())
}

func (c *cluster) get(g Gomega, apiVersion, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	g.Expect(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
	return object
}

// ready returns a field of the condition Ready of a Kustomization; "" without one.
func (c *cluster) ready(kustomization, field string) (value string) {
	object := c.get(c, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", kustomization)
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if entries, _ := condition.(map[string]any); entries["type"] == "Ready" {
			value, _ = entries[field].(string)
		}
	}
	return value
}

func (c *cluster) reason(kustomization string) string  { return c.ready(kustomization, "reason") }
func (c *cluster) message(kustomization string) string { return c.ready(kustomization, "message") }

func (c *cluster) awaitReady(kustomization string, matcher types.GomegaMatcher) {
	c.t.Helper()
	c.Eventually(func() string { return c.ready(kustomization, "status") }).WithTimeout(patience).Should(matcher, func() string {
		return kustomization + ": " + c.reason(kustomization) + ": " + c.message(kustomization)
	})
}

func (c *cluster) patch(kustomization, patch string) {
	c.t.Helper()
	c.mustRun("-n", namespace, "patch", "kustomizations.kustomize.toolkit.fluxcd.io", kustomization, "--type=merge", "--patch="+patch)
}

func (c *cluster) apply(manifests string) {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "manifests.yaml")
	c.Expect(os.WriteFile(file, []byte(manifests), 0o600)).To(Succeed())
	c.mustRun("apply", "-f", file)
}

// run returns what kubectl prints, also if it fails.
func (c *cluster) run(args ...string) string {
	args = append(c.kubectl[1:len(c.kubectl):len(c.kubectl)], args...)
	out, _ := exec.CommandContext(c.t.Context(), c.kubectl[0], args...).CombinedOutput() //nolint:gosec // the test chooses them
	return string(out)
}

func (c *cluster) mustRun(args ...string) {
	c.t.Helper()
	args = append(c.kubectl[1:len(c.kubectl):len(c.kubectl)], args...)
	if out, err := exec.CommandContext(c.t.Context(), c.kubectl[0], args...).CombinedOutput(); err != nil { //nolint:gosec // as above
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// block returns the block of YAML with a name of a document.
func block(t *testing.T, document, name string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no block %s", document, name)
	}
	return string(found[1])
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
