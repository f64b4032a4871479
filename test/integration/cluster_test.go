package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	deadline = 90 * time.Second // for what ordinarily takes a second or two
	interval = 50 * time.Millisecond

	systemNamespace = "ostiary-system"
	account         = "ostiary"
	managerUser     = "system:serviceaccount:" + systemNamespace + ":" + account
)

// cluster is the control plane with Ostiary installed, and what tests need to
// work with it.
type cluster struct {
	client.WithWatch
	dir        string // for files of the package's tests
	program    string
	kubeconfig string // the manager's
	config     *rest.Config
	audit      *auditLog
	statuses   *statusWatch
	webhook    string // address that the configurations name
	shared     *process
	cancel     context.CancelFunc
}

var (
	world     *cluster
	worldOnce sync.Once
	errWorld  error
)

// install gives the cluster, which the first caller sets up.
func install(t *testing.T) *cluster {
	t.Helper()
	worldOnce.Do(func() { world, errWorld = newCluster() })
	if errWorld != nil {
		t.Fatalf("setting up: %v", errWorld)
	}
	world.statuses.check(t)
	return world
}

func newCluster() (*cluster, error) {
	dir, err := os.MkdirTemp("", "ostiary-integration-")
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{dir: dir, config: plane.Config(), cancel: cancel, webhook: cptest.FreeAddress()}
	c.config.WarningHandler = rest.NoWarnings{}
	if c.WithWatch, err = client.NewWithWatch(c.config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	c.audit = &auditLog{file: plane.AuditLog(0), client: c}
	for _, step := range []func(context.Context) error{c.build, c.applyManifests, c.writeKubeconfig} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	// The garbage collector shall know the new kind at once.
	if err := plane.RestartControllerManager(ctx); err != nil {
		return nil, err
	}
	c.statuses = watchStatuses(ctx, c)
	return c, nil
}

func (c *cluster) close() {
	c.cancel()
	if c.shared != nil {
		c.shared.kill()
	}
	_ = os.RemoveAll(c.dir)
}

func (c *cluster) build(ctx context.Context) error {
	c.program = filepath.Join(c.dir, "ostiary")
	var flags []string
	if os.Getenv("OSTIARY_RACE") != "" {
		flags = append(flags, "-race")
	}
	return controlplane.BuildManager(ctx, "../..", c.program, flags...)
}

func (c *cluster) applyManifests(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-k", "../../config/namespace"},
		{"apply", "-k", "../../config/crd"},
		{"apply", "-k", "../../config/rbac"},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/webhookpolicies." + v1alpha1.GroupName},
	} {
		if out, errOut, err := c.kubectl(ctx, "", args...); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s%s", strings.Join(args, " "), err, out, errOut)
		}
	}
	return nil
}

// writeKubeconfig makes the manager its own service account, with no more
// permissions than an installation gives it.
func (c *cluster) writeKubeconfig(ctx context.Context) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: account}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
	if err := c.SubResource("token").Create(ctx, sa, token); err != nil {
		return fmt.Errorf("requesting the manager's token: %w", err)
	}
	const name = "ostiary"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	c.kubeconfig = filepath.Join(c.dir, "manager.kubeconfig")
	return clientcmd.WriteToFile(*config, c.kubeconfig)
}

// kubectl runs the real one, as the admin.
func (c *cluster) kubectl(ctx context.Context, stdin string, args ...string) (out, errOut string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, plane.Kubectl(), args...)
	cmd.Env = []string{"HOME=" + c.dir, "KUBECONFIG=" + plane.Kubeconfig()}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// await is gomega with deadlines for a busy machine.
func await(t *testing.T) Gomega {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(deadline)
	g.SetDefaultEventuallyPollingInterval(interval)
	g.SetDefaultConsistentlyDuration(3 * time.Second)
	g.SetDefaultConsistentlyPollingInterval(interval)
	return g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// namespace makes a namespace for a test.
func (c *cluster) namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	must(t, c.Create(t.Context(), ns))
	t.Cleanup(func() { _ = c.Delete(context.Background(), ns) })
	return ns.Name
}

// apply creates policies, which go with the test.
func (c *cluster) apply(t *testing.T, policies ...*v1alpha1.WebhookPolicy) {
	t.Helper()
	for _, p := range policies {
		must(t, c.Create(t.Context(), p))
		t.Cleanup(func() { _ = c.Delete(context.Background(), p) })
	}
}

// enforce applies policies and waits until their status says that they are enforced.
func (c *cluster) enforce(t *testing.T, policies ...*v1alpha1.WebhookPolicy) {
	t.Helper()
	c.apply(t, policies...)
	for _, p := range policies {
		c.awaitReady(t, p.Name)
	}
}

func (c *cluster) policy(ctx context.Context, name string) (*v1alpha1.WebhookPolicy, error) {
	p := &v1alpha1.WebhookPolicy{}
	return p, c.Get(ctx, client.ObjectKey{Name: name}, p)
}

// awaitReady waits until the latest generation of a policy is Ready.
func (c *cluster) awaitReady(t *testing.T, name string) *v1alpha1.WebhookPolicy {
	t.Helper()
	return c.awaitCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue)
}

// awaitCondition waits until the status of the latest generation has a condition.
func (c *cluster) awaitCondition(t *testing.T, name, kind string, want metav1.ConditionStatus) *v1alpha1.WebhookPolicy {
	t.Helper()
	var p *v1alpha1.WebhookPolicy
	await(t).Eventually(func() error {
		var err error
		if p, err = c.policy(t.Context(), name); err != nil {
			return err
		}
		got := condition(p, kind)
		if p.Status.ObservedGeneration != p.Generation || got.Status != want {
			return fmt.Errorf("policy %s: generation %d, observed %d, %s is %q (%s: %s), want %s",
				name, p.Generation, p.Status.ObservedGeneration, kind, got.Status, got.Reason, got.Message, want)
		}
		return nil
	}).Should(Succeed())
	return p
}

func condition(p *v1alpha1.WebhookPolicy, kind string) metav1.Condition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{Type: kind}
}

// change edits a policy and stores it.
func (c *cluster) change(t *testing.T, name string, edit func(*v1alpha1.WebhookPolicy)) {
	t.Helper()
	await(t).Eventually(func() error {
		p, err := c.policy(t.Context(), name)
		if err != nil {
			return err
		}
		edit(p)
		return c.Update(t.Context(), p)
	}).Should(Succeed())
}

// Verdicts that a probe asks for: the policies of newPolicy refuse bad ones.
const (
	good = "good"
	bad  = "bad"
)

// probe asks the API server to take a ConfigMap, without storing it.
func (c *cluster) probe(ctx context.Context, namespace, verdict string) error {
	return c.Create(ctx, configMap(namespace, verdict), client.DryRunAll)
}

func configMap(namespace, verdict string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"},
		Data:       map[string]string{"verdict": verdict},
	}
}

// awaitDenied waits until a policy refuses bad requests: API servers learn of a
// configuration a moment after the manager has written it.
func (c *cluster) awaitDenied(t *testing.T, namespace, policy string) {
	t.Helper()
	await(t).Eventually(func() error {
		if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, policy) {
			return fmt.Errorf("got %w, want a denial by policy %s", err, policy)
		}
		return nil
	}).Should(Succeed())
}

// awaitAllowed waits until nothing stands in the way of bad requests.
func (c *cluster) awaitAllowed(t *testing.T, namespace string) {
	t.Helper()
	await(t).Eventually(func() error { return c.probe(t.Context(), namespace, bad) }).Should(Succeed())
}

func deniedBy(err error, policy string) bool {
	return err != nil && strings.Contains(err.Error(), "denied the request: ") &&
		strings.Contains(err.Error(), "WebhookPolicy '"+policy+"'")
}

// unreachable reports whether the API server could not get an answer.
func unreachable(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}
