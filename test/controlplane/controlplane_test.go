package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	deadline = 2 * time.Minute // for what ordinarily takes seconds
	interval = 100 * time.Millisecond
)

// One control plane with all that there is, used by subtests in turn.
func TestControlPlane(t *testing.T) {
	var log bytes.Buffer
	parent := t.TempDir()
	cp, err := Start(t.Context(), Options{Dir: parent, APIServers: 2, Audit: true, Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	pids := cp.PIDs()
	client := kubernetes.NewForConfigOrDie(cp.Config())

	t.Run("collects garbage", func(t *testing.T) { testGarbageCollection(t, client) })
	t.Run("ends namespaces", func(t *testing.T) { testNamespaceEnds(t, client) })
	t.Run("authorizes", func(t *testing.T) { testAuthorization(t, cp) })
	t.Run("knows further users", func(t *testing.T) { testKubeconfig(t, cp) })
	t.Run("makes pods of workloads possible", func(t *testing.T) { testPod(t, client) })
	t.Run("reports its version", func(t *testing.T) { testVersion(t, client) })
	t.Run("serves kubectl", func(t *testing.T) { testKubectl(t, cp) })
	t.Run("API servers share their objects", func(t *testing.T) { testShared(t, cp) })
	t.Run("writes audit logs", func(t *testing.T) { testAudit(t, cp) })
	t.Run("restarts an API server", func(t *testing.T) { testRestart(t, cp) })
	t.Run("restarts the controller manager", func(t *testing.T) { testRestartManager(t, cp) })
	t.Run("adds an API server", func(t *testing.T) { testAdd(t, cp) })
	t.Run("refuses an API server that is not there", func(t *testing.T) {
		wantError(t, cp.StopAPIServer(3), "stopping an API server: no API server 3: there are 3, from 0")
		wantError(t, cp.StartAPIServer(t.Context(), -1), "starting an API server: no API server -1")
		wantError(t, cp.StartAPIServer(t.Context(), 0), "starting kube-apiserver-0: it was not stopped")
	})
	t.Run("tells its progress", func(t *testing.T) {
		for _, want := range []string{
			"etcd ready after ", "kube-apiserver-1 ready after ", "kube-controller-manager ready after ",
			"control plane ready after ",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %q in the log:\n%s", want, log.String())
			}
		}
	})

	if len(pids) != 4 {
		t.Errorf("processes %v, want 4", pids)
	}
	for name, pid := range cp.PIDs() {
		pids[name+" after restart"] = pid
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	wantNothingLeft(t, parent, pids)
	if err := cp.Stop(); err != nil {
		t.Errorf("stopping again: %v", err)
	}
	wantError(t, cp.StartAPIServer(t.Context(), 0), "starting an API server: the control plane was stopped")
}

func testGarbageCollection(t *testing.T, client kubernetes.Interface) {
	namespaces := client.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "garbage"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("garbage")
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() bool {
		_, err := maps.Get(t.Context(), owned.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, deadline, interval).Should(BeTrue(), "the owned object goes with its owner")
}

func testNamespaceEnds(t *testing.T, client kubernetes.Interface) {
	namespaces := client.CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), "garbage", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() bool {
		_, err := namespaces.Get(t.Context(), "garbage", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, deadline, interval).Should(BeTrue(), "the namespace goes")
}

func testAuthorization(t *testing.T, cp *ControlPlane) {
	config := cp.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody-special", Groups: []string{"system:authenticated"}}
	_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without roles lists secrets: %v, want forbidden", err)
	}
}

func testKubeconfig(t *testing.T, cp *ControlPlane) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.WriteKubeconfig(file, "ann", "people"); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews()
	review, err := client.Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if user := review.Status.UserInfo; user.Username != "ann" || !slices.Contains(user.Groups, "people") {
		t.Errorf("the API server knows the user as %q of %q, want ann of people", user.Username, user.Groups)
	}
}

func testPod(t *testing.T, client kubernetes.Interface) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c:1"}}},
	}
	created, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("a pod in the namespace default, at once: %v", err)
	}
	if created.Spec.ServiceAccountName != "default" {
		t.Errorf("service account %q, want default", created.Spec.ServiceAccountName)
	}
}

func testVersion(t *testing.T, client kubernetes.Interface) {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version.GitVersion, "v1.") || version.Major != "1" || version.Minor == "" {
		t.Errorf("version %+v, want a release of Kubernetes 1", version)
	}
}

func testKubectl(t *testing.T, cp *ControlPlane) {
	if out := runKubectl(t, cp, "", "get", "namespace", "default", "-o", "name"); out != "namespace/default\n" {
		t.Errorf("kubectl: %q", out)
	}
}

func testShared(t *testing.T, cp *ControlPlane) {
	if cp.Config(0).Host == cp.Config(1).Host {
		t.Fatalf("both API servers are %s", cp.Config().Host)
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	if _, err := configMaps(cp, 0).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := configMaps(cp, 1).Get(t.Context(), made.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func testAudit(t *testing.T, cp *ControlPlane) {
	for i, wantVerb := range []string{"create", "get"} {
		found := false
		for _, event := range auditEvents(t, cp.AuditLog(i)) {
			if event.ObjectRef.Name == "shared" {
				found = true
				if event.Verb != wantVerb || event.Stage != "ResponseComplete" {
					t.Errorf("API server %d recorded %+v, want %s when it is done", i, event, wantVerb)
				}
			}
		}
		if !found {
			t.Errorf("API server %d did not record its request", i)
		}
	}
}

type auditEvent struct {
	Stage, Verb string
	ObjectRef   struct{ Name string }
}

func auditEvents(t *testing.T, file string) []auditEvent {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []auditEvent
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return events // a last line without an end is still being written
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("audit line %s: %v", line, err)
		}
		events = append(events, event)
	}
}

func testRestart(t *testing.T, cp *ControlPlane) {
	host, pid := cp.Config(1).Host, cp.PIDs()["kube-apiserver-1"]
	if err := cp.StopAPIServer(1); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("its process lives on")
	}
	if _, err := configMaps(cp, 1).Get(t.Context(), "shared", metav1.GetOptions{}); err == nil {
		t.Error("it answers after it was stopped")
	}
	if _, err := configMaps(cp, 0).Get(t.Context(), "shared", metav1.GetOptions{}); err != nil {
		t.Errorf("the other API server: %v", err)
	}
	wantError(t, cp.StopAPIServer(1), "stopping kube-apiserver-1: it is not running")
	if err := cp.StartAPIServer(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if cp.Config(1).Host != host {
		t.Errorf("it moved from %s to %s", host, cp.Config(1).Host)
	}
	if _, err := configMaps(cp, 1).Get(t.Context(), "shared", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if cp.PIDs()["kube-apiserver-1"] == pid {
		t.Error("it is the same process")
	}
}

// A restart is how the garbage collector learns of a new kind without waiting for its next look.
func testRestartManager(t *testing.T, cp *ControlPlane) {
	pid := cp.PIDs()[ControllerManager]
	runKubectl(t, cp, thingDefinition, "apply", "-f", "-")
	runKubectl(t, cp, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/things.example.com")
	runKubectl(t, cp, thing, "apply", "-f", "-")
	if err := cp.RestartControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the old process lives on")
	}
	uid := runKubectl(t, cp, "", "get", "things", "owner", "-o", "jsonpath={.metadata.uid}")
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-a-thing", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Thing", Name: "owner", UID: types.UID(uid)},
	}}}
	if _, err := configMaps(cp, 0).Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	runKubectl(t, cp, "", "delete", "things", "owner")
	NewWithT(t).Eventually(func() bool {
		_, err := configMaps(cp, 0).Get(t.Context(), owned.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, deadline, interval).Should(BeTrue(), "the owned object goes with its owner")
}

const thingDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

const thing = `apiVersion: example.com/v1
kind: Thing
metadata: {name: owner, namespace: default}
`

func runKubectl(t *testing.T, cp *ControlPlane, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cp.Kubectl(), args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + cp.Kubeconfig(len(cp.apiServers)-1)}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestNoControllerManager(t *testing.T) {
	parent := t.TempDir()
	cp, err := Start(t.Context(), Options{Dir: parent, NoControllerManager: true, APIServerArgs: []string{"--event-ttl=7m"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	pids := cp.PIDs()
	if _, ok := pids[ControllerManager]; ok || len(pids) != 2 {
		t.Errorf("processes %v, want etcd and one API server", pids)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c:1"}}},
	}
	client := kubernetes.NewForConfigOrDie(cp.Config())
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Errorf("a pod without a service account: %v", err)
	}
	wantError(t, cp.RestartControllerManager(t.Context()), "restarting the controller manager: there is none")

	// A component that ends by itself is not passed over in silence.
	process := cp.etcds[0].process
	if err := process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-process.done
	wantError(t, cp.Stop(), "stopping etcd: it had ended by itself: signal: killed; its log ends with:\n")
	wantNothingLeft(t, parent, pids)
}

func TestStartFailure(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx     context.Context
		options Options
		want    []string
	}{
		"a flag that is unknown": {
			options: Options{APIServerArgs: []string{"--no-such-flag"}},
			want:    []string{"starting kube-apiserver-0: it ended: exit status 1; its log ends with:\n", "unknown flag: --no-such-flag"},
		},
		"an audit policy that is wrong": {
			options: Options{Audit: true, AuditPolicy: "kind: Nonsense"},
			want:    []string{"starting kube-apiserver-0: it ended", "audit-policy.yaml"},
		},
		"canceled":                         {ctx: canceled, want: []string{"starting etcd: context canceled"}},
		"a negative number":                {options: Options{APIServers: -1}, want: []string{"APIServers is -1: use 1 to 9"}},
		"too many":                         {options: Options{APIServers: 10}, want: []string{"APIServers is 10: use 1 to 9"}},
		"an audit policy without auditing": {options: Options{AuditPolicy: "x"}, want: []string{"AuditPolicy is set and Audit is not: set both"}},
		"no place for the directory":       {options: Options{Dir: "/dev/null"}, want: []string{"making the temporary directory: "}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			if tt.options.Dir == "" {
				tt.options.Dir = parent
			}
			if tt.ctx == nil {
				tt.ctx = t.Context()
			}
			cp, err := Start(tt.ctx, tt.options)
			if err == nil {
				_ = cp.Stop()
				t.Fatal("it started")
			}
			for _, want := range tt.want {
				wantError(t, err, want)
			}
			if len(err.Error()) > tailBytes+1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			wantNothingLeft(t, parent, nil)
		})
	}
}

// The end of the context while an API server comes up ends that, and etcd with it.
func TestStartCanceledHalfway(t *testing.T) {
	parent := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	log := &onFirstWrite{do: func() { cancel(reason) }} // the first line says that etcd is ready
	_, err := Start(ctx, Options{Dir: parent, APIServers: 2, Log: log})
	if !errors.Is(err, reason) {
		t.Errorf("error %v, want %v", err, reason)
	}
	wantNothingLeft(t, parent, nil)
}

type onFirstWrite struct {
	once sync.Once
	do   func()
}

func (w *onFirstWrite) Write(p []byte) (int, error) {
	w.once.Do(w.do)
	return len(p), nil
}

func configMaps(cp *ControlPlane, i int) interface {
	Create(context.Context, *corev1.ConfigMap, metav1.CreateOptions) (*corev1.ConfigMap, error)
	Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error)
} {
	return kubernetes.NewForConfigOrDie(cp.Config(i)).CoreV1().ConfigMaps("default")
}

func wantNothingLeft(t *testing.T, parent string, pids map[string]int) {
	t.Helper()
	for name, pid := range pids {
		if alive(pid) {
			t.Errorf("%s (%d) lives on", name, pid)
		}
	}
	left, err := filepath.Glob(filepath.Join(parent, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// Three members of etcd survive the loss of one, and stop at the loss of two
// until one is back.
func TestThreeEtcds(t *testing.T) {
	cp, err := Start(t.Context(), Options{
		Dir:                 t.TempDir(),
		Etcds:               3,
		NoControllerManager: true,
		EtcdArgs:            []string{"--quota-backend-bytes=123456789"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	maps := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ConfigMaps("default")
	create := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
		return err
	}
	succeeds := func(when string) {
		t.Helper()
		NewWithT(t).Eventually(func() error { return create(10 * time.Second) }, deadline, interval).Should(Succeed(), when)
	}
	for i := range 2 {
		succeeds("before a member is lost")
		if err := cp.KillEtcd(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(3 * time.Second); err == nil {
		t.Error("something was written without a majority of etcd")
	}
	for i := range 2 {
		if err := cp.StartEtcd(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		succeeds("after a member has come back")
	}
	var status struct{ DBSizeQuota string }
	if err := cp.AskEtcd(t.Context(), 2, "/v3/maintenance/status", struct{}{}, &status); err != nil || status.DBSizeQuota != "123456789" {
		t.Errorf("etcd says its quota is %q, error %v", status.DBSizeQuota, err)
	}
	wantError(t, cp.AskEtcd(t.Context(), 0, "/v3/nothing", struct{}{}, nil), "asking etcd for /v3/nothing: 404 Not Found")
	wantError(t, cp.StartEtcd(t.Context(), 0), "starting etcd-0: it was not stopped")
	wantError(t, cp.KillEtcd(3), "killing etcd: no member 3")
}

func testAdd(t *testing.T, cp *ControlPlane) {
	i, err := cp.AddAPIServer(t.Context(), "", "--default-watch-cache-size=50")
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(cp.Config(i))
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{}); err != nil || i != 2 {
		t.Errorf("API server %d: %v", i, err)
	}
	if err := cp.StopAPIServer(i); err != nil {
		t.Error(err)
	}
}
