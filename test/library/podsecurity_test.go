package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	psapolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

// ofChecks are the policies by the checks of Kubernetes' Pod Security Standards.
func ofChecks() map[psapolicy.CheckID]string {
	const baseline, restricted = "pod-security-baseline/baseline-", "pod-security-restricted/restricted-"
	return map[psapolicy.CheckID]string{
		"allowPrivilegeEscalation":   restricted + "privilege-escalation",
		"appArmorProfile":            baseline + "apparmor",
		"capabilities_baseline":      baseline + "capabilities",
		"capabilities_restricted":    restricted + "capabilities",
		"hostNamespaces":             baseline + "host-namespaces",
		"hostPathVolumes":            baseline + "host-paths",
		"hostPorts":                  baseline + "host-ports",
		"hostProbesAndHostLifecycle": baseline + "host-probes",
		"privileged":                 baseline + "privileged",
		"procMount":                  baseline + "proc-mount",
		"procMount_restricted":       restricted + "proc-mount",
		"restrictedVolumes":          restricted + "volume-types",
		"runAsNonRoot":               restricted + "non-root",
		"runAsUser":                  restricted + "run-as-user",
		"seLinuxOptions":             baseline + "selinux",
		"seccompProfile_baseline":    baseline + "seccomp",
		"seccompProfile_restricted":  restricted + "seccomp",
		"sysctls":                    baseline + "sysctls",
		"windowsHostProcess":         baseline + "windows-host-process",
	}
}

// TestPodSecurity compares each policy with the newest version of its check, on all Pods
// with which Kubernetes tests its checks, in all versions of them.
func TestPodSecurity(t *testing.T) {
	pods := fixtures(t)
	names := ofChecks()
	for _, check := range psapolicy.DefaultChecks() {
		t.Run(string(check.ID), func(t *testing.T) {
			if names[check.ID] == "" {
				t.Fatal("the library has no policy for this check")
			}
			group, p := enforced(t, folder+"/"+names[check.ID])
			delete(names, check.ID)
			rejected := 0
			for text, path := range pods {
				pod := &corev1.Pod{}
				if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				want := check.Versions[len(check.Versions)-1].CheckPod(&pod.ObjectMeta, &pod.Spec)
				got := plugintest.Put(t, group, p, plugintest.Request{Object: text}, policy.Environment{Now: time.Now})
				if got.Code == 0 != want.Allowed {
					t.Errorf("%s: %s gives %d %q, and Kubernetes %q", path, p.Name, got.Code, got.Message, want.ForbiddenDetail)
				}
				if !want.Allowed {
					rejected++
				}
			}
			if rejected == 0 || rejected == len(pods) {
				t.Errorf("Kubernetes rejects %d of %d Pods: they show nothing", rejected, len(pods))
			}
		})
	}
	for check, name := range names {
		t.Errorf("Kubernetes has no check %s, which %s is for", check, name)
	}
}

// fixtures are the Pods with which Kubernetes tests its checks, each once, with a path.
func fixtures(t *testing.T) map[string]string {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(module)), "test", "testdata")
	paths, err := filepath.Glob(dir + "/*/v*/*/*.yaml")
	if err != nil || len(paths) < 4000 {
		t.Fatalf("found %d Pods: %v", len(paths), err)
	}
	out := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[withoutName(t, text)] = strings.TrimPrefix(path, dir+"/")
	}
	t.Logf("%d different Pods in %d files", len(out), len(paths))
	return out
}

// withoutName returns a Pod without its name, in which many of them differ alone.
func withoutName(t *testing.T, text []byte) string {
	t.Helper()
	pod := map[string]any{}
	if err := yaml.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	pod["metadata"].(map[string]any)["name"] = "web"
	out, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// enforced compiles a policy that denies.
func enforced(t *testing.T, path string) (*policy.Group, *v1alpha1.WebhookPolicy) {
	t.Helper()
	text, err := os.ReadFile(path + "/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, string(text))
	p.Spec.Bindings = nil
	spec, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	group, _ := plugintest.Compile(t, string(spec))
	return group, p
}
