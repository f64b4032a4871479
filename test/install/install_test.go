package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// TestInstallation goes through the life of an installation.
func TestInstallation(t *testing.T) {
	w := newWorld(t)
	for _, step := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"the manager has no unused methods", testSize},
		{"the manager ends without its definition", testNoDefinition},
		{"the manager waits for its definition", testLateDefinition},
		{"the README's commands install it", testQuickStart},
		{"manifests are accepted", testManifests},
		{"the manager ends where it cannot run", testNoStart},
		{"the manager may not write its Secrets", testNoSecrets},
		{"the self-test says what is missing", testSelfTestFails},
		{"the self-test proves a denial", testSelfTest},
		{"the first policy of the README", testFirstPolicy},
		{"monitoring", testMonitoring},
		{"uninstall", testUninstall},
		{"the namespace is deleted first", testNamespaceFirst},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(t, w) }) {
			t.FailNow() // each stands on those before
		}
	}
}

// testQuickStart types what the README says to install with kubectl, with the folders that
// hack/release.sh renders instead of the files of a release. Pods do not run here; they do in
// test/e2e.
func testQuickStart(t *testing.T, _ *world) {
	section := readme(t, "Install it")
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(section)
	if len(block) != 2 || strings.Count(block[1], "kubectl apply") != 2 {
		t.Fatal("the README does not install with two commands of kubectl")
	}
	folder, err := filepath.Abs(root)
	must(t, err)
	const release = "-f https://github.com/ostiary/ostiary/releases/download/v0.1.0/"
	folders := strings.NewReplacer(release+"install.yaml", "-k config/default", release+"self-test.yaml", "-k config/self-test")
	for command := range strings.Lines(folders.Replace(block[1])) {
		if out, err := shell(t, folder, command); err != nil {
			t.Fatalf("%s%v\n%s", command, err, out)
		}
	}
	if out, err := shell(t, folder, "kubectl delete -k config/self-test"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func readme(t *testing.T, heading string) string {
	t.Helper()
	raw, err := os.ReadFile(root + "/README.md")
	must(t, err)
	_, section, found := strings.Cut(string(raw), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the README has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// shell runs a command as a new user would, who has kubectl and nothing else.
func shell(t *testing.T, folder, command string) (string, error) {
	t.Helper()
	home := t.TempDir()
	must(t, os.Symlink(plane.Kubectl(), filepath.Join(home, "kubectl")))
	sh := newCommand(t, "sh", "-c", command)
	sh.Dir, sh.Env = folder, []string{"PATH=" + home + ":/usr/bin:/bin", "HOME=" + home, "KUBECONFIG=" + plane.Kubeconfig()}
	out, err := sh.CombinedOutput()
	return string(out), err
}

func testManifests(t *testing.T, _ *world) {
	for range 2 {
		stdout, stderr, err := kubectl(t, "apply", "--server-side", "--validate=strict", "-k", root+"/config/default")
		if err != nil || stderr != "" {
			t.Fatalf("%v\n%s%s", err, stdout, stderr)
		}
	}
	// Without the kinds of the Prometheus operator, which are not here.
	rendered, stderr, err := kubectl(t, "kustomize", root+"/config/production")
	if err != nil {
		t.Fatal(err, stderr)
	}
	for _, folder := range []string{"self-test", "uninstall"} {
		more, stderr, err := kubectl(t, "kustomize", root+"/config/"+folder)
		if err != nil {
			t.Fatal(err, stderr)
		}
		rendered += "---\n" + more
	}
	var known []string
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		if !strings.Contains(document, "apiVersion: monitoring.coreos.com/") {
			known = append(known, document)
		}
	}
	file := filepath.Join(t.TempDir(), "production.yaml")
	must(t, os.WriteFile(file, []byte(strings.Join(known, "\n---\n")), 0o600))
	stdout, stderr, err := kubectl(t, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file)
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if n := strings.Count(stdout, "\n"); n < 25 {
		t.Errorf("%d objects were tried:\n%s", n, stdout)
	}
	_, stderr, err = kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/webhookpolicies.admission.ostiary.dev")
	if err != nil {
		t.Fatal(err, stderr)
	}
	must(t, plane.RestartControllerManager(t.Context())) // its garbage collector shall know the new kind at once
}

func testSelfTestFails(t *testing.T, w *world) {
	stdout, stderr, err := w.task(t.Context(), "self-test", "--timeout=2s")
	want := regexp.MustCompile(`^ostiary: policy ostiary-self-test-[0-9a-f]{8} does not deny a request: .*; its status is empty: check that the Pods of Ostiary run and that one of them holds the Lease ostiary-leader\n$`)
	if err == nil || stdout != "" || !want.MatchString(strings.ReplaceAll(stderr, "up\ncontext", "up: context")) {
		t.Errorf("got %v, %q, %q", err, stdout, stderr)
	}
	wantNoPolicies(t, w)
}

func testSelfTest(t *testing.T, w *world) {
	w.start(t, 2)
	stdout, stderr, err := w.task(t.Context(), "self-test")
	want := regexp.MustCompile(`^Ostiary works: a policy denied a request [0-9.ms]+ after its creation, and the request passed [0-9.ms]+ after the deletion of the policy\n$`)
	if err != nil || stderr != "" || !want.MatchString(stdout) {
		t.Errorf("got %v, %q, %q", err, stdout, stderr)
	}
	wantNoPolicies(t, w)
}

func wantNoPolicies(t *testing.T, w *world) {
	t.Helper()
	var list v1alpha1.WebhookPolicyList
	must(t, w.List(t.Context(), &list))
	if len(list.Items) > 0 {
		t.Errorf("policy %s is left", list.Items[0].Name)
	}
}

// testFirstPolicy does what the README says, in an empty folder and with nothing
// but a shell and kubectl, and sees what it shows.
func testFirstPolicy(t *testing.T, _ *world) {
	section := readme(t, "A first policy")
	blocks := regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 || blocks[0][1] != "yaml" || blocks[1][1] != "console" {
		t.Fatalf("the first policy of the README is not a policy and commands: %d blocks", len(blocks))
	}
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "require-team.yaml"), []byte(blocks[0][2]), 0o600))
	age := regexp.MustCompile(`(Enforced) +0? +\d+s\n`) // and the violations, which the audit adds after a moment
	var got strings.Builder
	for line := range strings.Lines(blocks[1][2]) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		out, _ := shell(t, folder, command) // a refusal is an error
		got.WriteString(line + out)
	}
	if got, want := age.ReplaceAllString(got.String(), "$1 2s\n"), age.ReplaceAllString(blocks[1][2], "$1 2s\n"); got != want {
		t.Errorf("the README shows\n%s\nand this is\n%s", want, got)
	}
	if _, stderr, err := kubectl(t, "delete", "whp", "--all"); err != nil {
		t.Error(stderr)
	}
}

// denying is a policy that refuses labelled ConfigMaps.
func denying(name string) *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": name}},
				ResourceRules:  []admissionregistrationv1.NamedRuleWithOperations{configMaps()},
			},
			Validations: []v1alpha1.Validation{{Expression: "false", Message: "refused by " + name}},
		},
	}
}

func configMaps() admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
}

// ask sends a dry-run request that a policy of denying refuses.
func (w *world) ask(ctx context.Context, policy string) error {
	return w.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", GenerateName: "asked-", Labels: map[string]string{"for": policy},
	}}, client.DryRunAll)
}

func (w *world) enforce(t *testing.T, name string) {
	t.Helper()
	must(t, w.Create(t.Context(), denying(name)))
	await(t).Eventually(func() error { return w.ask(t.Context(), name) }).Should(MatchError(ContainSubstring("refused by " + name)))
}

// registered are the names of all generated configurations.
func (w *world) registered(ctx context.Context) (names []string, err error) {
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	ours := client.MatchingLabels{registration.LabelManagedBy: registration.ManagedBy}
	for _, list := range []client.ObjectList{&validating, &mutating} {
		if err := w.List(ctx, list, ours); err != nil {
			return nil, err
		}
	}
	for i := range validating.Items {
		names = append(names, validating.Items[i].Name)
	}
	for i := range mutating.Items {
		names = append(names, mutating.Items[i].Name)
	}
	return names, nil
}

// With policies kept, nothing stays registered and nothing is refused.
func testUninstall(t *testing.T, w *world) {
	w.enforce(t, "kept")
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	type result struct {
		stdout, stderr string
		err            error
	}
	done := make(chan result)
	go func() {
		stdout, stderr, err := w.task(ctx, "uninstall")
		done <- result{stdout, stderr, err}
	}()
	// The kubelet's part: a Pod of a Deployment scaled to 0 gets SIGTERM.
	await(t).Eventually(func() string {
		replicas, _, _ := kubectl(t, "-n", namespace, "get", "deployment", "ostiary", "-o", "jsonpath={.spec.replicas}")
		return replicas
	}).Should(Equal("0"))
	w.stop(t)
	r := <-done
	want := regexp.MustCompile(`^Deployment ostiary-system/ostiary is scaled to 0 and \d+ webhook configurations are deleted. WebhookPolicies are kept but not enforced\n$`)
	if r.err != nil || !want.MatchString(r.stdout) {
		t.Fatalf("got %v, %q, %q", r.err, r.stdout, r.stderr)
	}
	w.wantNothingRegistered(t, "kept")
	// It is done again without an error, and Ostiary can be started again.
	if _, stderr, err := w.task(t.Context(), "uninstall"); err != nil {
		t.Error(err, stderr)
	}
	w.start(t, 1)
	await(t).Eventually(func() error { return w.ask(t.Context(), "kept") }).Should(MatchError(ContainSubstring("refused by kept")))
}

func (w *world) wantNothingRegistered(t *testing.T, policy string) {
	t.Helper()
	await(t).Eventually(func() error {
		left, err := w.registered(t.Context())
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("still registered: %v", left)
		}
		return err
	}).Should(Succeed())
	await(t).Eventually(func() error { return w.ask(t.Context(), policy) }).Should(Succeed())
	must(t, w.Get(t.Context(), client.ObjectKey{Name: policy}, &v1alpha1.WebhookPolicy{}))
}

// Who deletes the namespace first takes Ostiary's Service and Pods away. The
// leader takes back what is registered before that.
func testNamespaceFirst(t *testing.T, w *world) {
	must(t, w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	w.wantNothingRegistered(t, "kept")
	// Nothing comes back, the canaries among it, which are repaired a second
	// after a client deletes them.
	await(t).Consistently(func() ([]string, error) { return w.registered(t.Context()) }).WithTimeout(5 * time.Second).Should(BeEmpty())
}
