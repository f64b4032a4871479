package install

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// flags are those of a manager at free ports. Of a flag that is given twice the
// last holds.
func (w *world) flags(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{
		"--kubeconfig=" + plane.Kubeconfig(), "--webhook-url=https://" + w.webhook, "--webhook-address=" + cptest.FreeAddress(),
		"--metrics-address=" + cptest.FreeAddress(), "--health-address=" + cptest.FreeAddress(), "--drain-min=100ms", "--drain-max=200ms",
		"--permitted-backend-addresses=127.0.0.0/8",
	}, more...)
}

// startAlone starts a manager that is expected to end by itself, and returns the
// last line of what it said.
func (w *world) startAlone(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := run(newCommand(t, w.program, w.flags(t, args...)...))
	if err == nil || stdout != "" {
		t.Errorf("it ended with %v and printed %q: want an error and nothing", err, stdout)
	}
	t.Log(stderr)
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	return lines[len(lines)-1]
}

// testSize fails if the linker keeps every exported method, as it does for a program that
// can look up methods by name: with text/template or reflect.Value.MethodByName. It makes
// the program 30 MB larger, and 20 MiB of it stay in memory.
func testSize(t *testing.T, w *world) {
	const limit = 85e6 // bytes, with symbols
	info, err := os.Stat(w.program)
	must(t, err)
	if info.Size() > limit {
		t.Errorf("the manager has %d bytes, want at most %d: look for what finds methods by name (go build -ldflags=-dumpdep, ReflectMethod)", info.Size(), int(limit))
	}
}

// testNoDefinition starts the manager before anything is installed.
func testNoDefinition(t *testing.T, w *world) {
	const want = "ostiary: making the manager: the API server has no WebhookPolicy in admission.ostiary.dev/v1alpha1: apply config/crd first"
	if got := w.startAlone(t); got != want {
		t.Errorf("it ended with %q, want %q", got, want)
	}
	w.wantNone(t)
}

// testLateDefinition applies the definition while a manager starts.
func testLateDefinition(t *testing.T, w *world) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer log.Close()
	health := cptest.FreeAddress()
	manager := newCommand(t, w.program, w.flags(t, "--health-address="+health)...)
	manager.Stderr = log
	must(t, manager.Start())
	t.Cleanup(func() { _ = manager.Process.Kill() })
	await(t).Eventually(func() (string, error) {
		lines, err := os.ReadFile(log.Name())
		return string(lines), err
	}).Should(ContainSubstring("Waiting for the kind WebhookPolicy"))
	folder, err := filepath.Abs(root)
	must(t, err)
	run := func(command string) {
		if out, err := shell(t, folder, command); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	run("kubectl apply --server-side -k config/default")
	await(t).Eventually(func() (int, error) {
		answer, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}).Should(Equal(http.StatusOK))
	must(t, manager.Process.Signal(os.Interrupt))
	must(t, manager.Wait())
	run("kubectl delete -k config/default") // with the namespace, Kubernetes deletes what it owns
	await(t).Eventually(func() ([]string, error) { return w.registered(t.Context()) }).Should(BeEmpty())
}

// wantNone checks that nothing is half done.
func (w *world) wantNone(t *testing.T) {
	t.Helper()
	if left, err := w.registered(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("registered all the same: %v, %v", left, err)
	}
}

// testNoStart starts the manager where it cannot run: it says so, and ends.
func testNoStart(t *testing.T, w *world) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	inUse := taken.Addr().String()
	malformed := filepath.Join(t.TempDir(), "malformed")
	must(t, os.WriteFile(malformed, []byte("clusters: [\n"), 0o600))
	for name, tt := range map[string]struct{ arg, want string }{
		"an unknown flag": {arg: "--drain-minimum=1s", want: "unknown flag: --drain-minimum"},
		"a word":          {arg: "serve", want: `unexpected argument "serve": every setting is a flag, see --help`},
		"a malformed file": {
			arg:  "--kubeconfig=" + malformed,
			want: `finding the API server: error loading config file "` + malformed + `": yaml: `,
		},
		"a file that is none": {
			arg:  "--kubeconfig=/no/such/file",
			want: "finding the API server: stat /no/such/file: no such file or directory",
		},
		"its port is in use": {
			arg:  "--webhook-address=" + inUse,
			want: "listening for admission reviews: listen tcp " + inUse + ": bind: address already in use",
		},
		"for probes, in use": {
			arg:  "--health-address=" + inUse,
			want: "listening for probes: listen tcp " + inUse + ": bind: address already in use",
		},
		"for metrics, in use": {
			arg:  "--metrics-address=" + inUse,
			want: "listening for metrics: listen tcp " + inUse + ": bind: address already in use",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.startAlone(t, tt.arg); !strings.HasPrefix(got, "ostiary: "+tt.want) {
				t.Errorf("it ended with %q, want %q", got, tt.want)
			}
		})
	}
}

// testNoSecrets starts the manager as its own account, which may not create the
// Secret of its CA. Without a certificate it ends at once. With one, it goes on: who
// may lead may be granted it at any time.
func testNoSecrets(t *testing.T, w *world) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, plane.WriteKubeconfig(file, "system:serviceaccount:"+namespace+":ostiary"))
	t.Run("nor read them", func(t *testing.T) {
		w.withoutSecrets(t, "create", "get")
		const want = "ostiary: no permission to read Secret ostiary-system/ostiary-serving or to create Secrets: apply config/rbac first"
		if got := w.startAlone(t, "--kubeconfig="+file); got != want {
			t.Errorf("it ended with %q, want %q", got, want)
		}
	})
	w.withoutSecrets(t, "create")
	const want = "ostiary: there is no certificate in Secret ostiary-system/ostiary-serving, and Ostiary may not create Secrets: apply config/rbac first"
	if got := w.startAlone(t, "--kubeconfig="+file); got != want {
		t.Errorf("it ended with %q, want %q", got, want)
	}
	w.wantNone(t)

	broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ostiary-serving"}}
	must(t, w.Create(t.Context(), broken))
	defer func() { must(t, w.Delete(context.Background(), broken)) }()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer log.Close()
	health := cptest.FreeAddress()
	manager := newCommand(t, w.program, w.flags(t, "--kubeconfig="+file, "--health-address="+health)...)
	manager.Stderr = log
	must(t, manager.Start())
	defer func() { _ = manager.Process.Signal(os.Interrupt); _ = manager.Wait() }()
	await(t).Eventually(func() (string, error) {
		said, err := os.ReadFile(log.Name())
		return string(said), err
	}).Should(ContainSubstring(`"error":"writing Secret ostiary-system/ostiary-ca: secrets is forbidden: User \"system:serviceaccount:ostiary-system:ostiary\" cannot create resource \"secrets\"`))
	answer, err := http.Get("http://" + health + "/readyz")
	must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		t.Error("it is ready all the same")
	}
	w.wantNone(t)
}

// withoutSecrets takes the rules about Secrets that begin with one of the verbs from
// Ostiary's account for the length of the test.
func (w *world) withoutSecrets(t *testing.T, verbs ...string) {
	t.Helper()
	var role rbacv1.Role
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ostiary"}, &role))
	before := slices.Clone(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return r.Resources[0] == "secrets" && slices.Contains(verbs, r.Verbs[0])
	})
	if len(role.Rules) > len(before)-len(verbs) {
		t.Fatalf("the role has no rules of their own for Secrets that begin with %q", verbs)
	}
	must(t, w.Update(t.Context(), &role))
	t.Cleanup(func() {
		role.Rules = before
		must(t, w.Update(context.Background(), &role))
	})
}
