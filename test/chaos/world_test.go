package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/balancer"
	"github.com/ostiary/ostiary/test/controlplane"
)

const (
	apiServers = 2
	replicas   = 3

	systemNamespace = "ostiary-system"
	account         = "ostiary"
	managerUser     = "system:serviceaccount:" + systemNamespace + ":" + account
	serviceName     = "ostiary-webhook"

	caSecret      = "ostiary-ca"
	servingSecret = "ostiary-serving"

	// timeout is for what ordinarily takes seconds.
	timeout = 3 * time.Minute
)

// auditPolicy records what the load and the managers write.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + managerUser + `"]
  verbs: [create, update, patch, delete]
- level: Metadata
  verbs: [create, update, delete]
  resources: [{group: "", resources: [configmaps]}]
- level: None
`

// world is the cluster that scenarios break.
type world struct {
	plane   *controlplane.ControlPlane
	dir     string
	program string // the manager
	token   string // the manager's
	scraper string // the token of who reads metrics; "" if they need none
	admins  []client.WithWatch
	audits  []*auditLog
	service *balancer.Balancer
	// stalls are where API server 1 reaches etcd for configurations of webhooks.
	stalls *relay

	// up says which API servers the harness has not stopped.
	up [apiServers]atomic.Bool
	// disturbed says that the harness keeps API servers or etcd from working:
	// what they themselves fail at is not the failure of a webhook.
	disturbed atomic.Bool
	// frozen says that nothing can be written, so that endpoints stay as they are.
	frozen atomic.Bool

	mu      sync.Mutex
	members []*member
	current string   // program of managers that are started
	flags   []string // theirs
	serial  int
}

// newWorld starts a control plane with etcd of some kind, and three replicas.
func newWorld(ctx context.Context, etcd etcd) (_ *world, err error) {
	w := &world{}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	var more []string
	if etcd.quota > 0 {
		more = []string{fmt.Sprintf("--quota-backend-bytes=%d", etcd.quota)}
	}
	if w.plane, err = controlplane.Start(ctx, controlplane.Options{
		APIServers: apiServers, Etcds: etcd.members, EtcdArgs: more, NoControllerManager: true, Audit: true, AuditPolicy: auditPolicy,
		// No kube-proxy routes cluster IPs here, but those on loopback need no route.
		APIServerArgs: []string{"--service-cluster-ip-range=127.96.0.0/16"},
		ArgsOf:        w.argsOf,
	}); err != nil {
		return nil, err
	}
	// In there it goes with the control plane, however that ends.
	if w.dir, err = os.MkdirTemp(w.plane.Dir(), "chaos-"); err != nil {
		return nil, err
	}
	for i := range apiServers {
		w.up[i].Store(true)
		w.audits = append(w.audits, &auditLog{file: w.plane.AuditLog(i)})
	}
	for _, step := range []func(context.Context) error{
		w.connect, w.build, w.applyManifests, w.aggregate, w.makeService, w.makeToken, w.applyPolicies,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// argsOf has API server 1 reach etcd for configurations of webhooks by a way
// that can be held: it then does not hear of new ones, and everything else works.
func (w *world) argsOf(i int, etcd []string) []string {
	if i != 1 {
		return nil
	}
	var err error
	if w.stalls == nil {
		if w.stalls, err = newRelay(strings.TrimPrefix(etcd[0], "https://")); err != nil {
			return []string{"--etcd-servers-overrides=" + err.Error()} // fails to start, and says why
		}
	}
	to := "https://" + w.stalls.address()
	return []string{"--etcd-servers-overrides=admissionregistration.k8s.io/validatingwebhookconfigurations#" + to +
		",admissionregistration.k8s.io/mutatingwebhookconfigurations#" + to}
}

func (w *world) close() {
	for _, m := range w.all() {
		m.discard()
	}
	if w.service != nil {
		w.service.Close()
	}
	if w.plane != nil {
		_ = w.plane.Stop()
	}
	if w.stalls != nil {
		w.stalls.close()
	}
}

func (w *world) connect(context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	for i := range apiServers {
		config := w.plane.Config(i)
		config.WarningHandler = rest.NoWarnings{}
		admin, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			return fmt.Errorf("making the admin's client: %w", err)
		}
		w.admins = append(w.admins, admin)
	}
	return nil
}

// admin is a client of an API server that is up.
func (w *world) admin() client.WithWatch {
	for i := range apiServers {
		if w.up[i].Load() {
			return w.admins[i]
		}
	}
	return w.admins[0]
}

func (w *world) build(ctx context.Context) error {
	w.program = filepath.Join(w.dir, "ostiary")
	return controlplane.BuildManager(ctx, "../..", w.program)
}

func (w *world) applyManifests(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-k", "../../config/namespace"},
		{"apply", "-k", "../../config/crd"},
		{"apply", "-k", "../../config/rbac"},
		{"apply", "-f", reportKinds, "-f", clusterReportKinds, "-f", "../../config/components/reports/role.yaml"},
		{"wait", "--for=condition=Established", "--timeout=120s", "crd/webhookpolicies." + v1alpha1.GroupName},
	} {
		if err := w.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// aggregate gives the role of the audit the rules of the built-in kinds: no controller manager
// aggregates roles here.
func (w *world) aggregate(ctx context.Context) error {
	var from, to rbacv1.ClusterRole
	if err := errors.Join(
		w.admins[0].Get(ctx, client.ObjectKey{Name: "ostiary-audit-kinds"}, &from),
		w.admins[0].Get(ctx, client.ObjectKey{Name: "ostiary-audit"}, &to),
	); err != nil {
		return err
	}
	to.Rules = from.Rules
	return w.admins[0].Update(ctx, &to)
}

// Files with the kinds of reports.
const (
	reportKinds        = "../../config/components/reports/reports.yaml"
	clusterReportKinds = "../../config/components/reports/cluster_reports.yaml"
)

func (w *world) kubectl(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, w.plane.Kubectl(), args...)
	cmd.Env = []string{"HOME=" + w.dir, "KUBECONFIG=" + w.plane.Kubeconfig()}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &out)
	}
	return nil
}

// makeService makes the Service, and what stands behind its cluster IP.
func (w *world) makeService(ctx context.Context) error {
	for try := 0; ; try++ {
		ip, port := fmt.Sprintf("127.96.%d.%d", rand.IntN(256), 2+rand.IntN(250)), 20000+rand.IntN(10000)
		b, err := balancer.Listen(net.JoinHostPort(ip, strconv.Itoa(port)), balancer.Random)
		if err != nil && try < 10 {
			continue
		}
		if err != nil {
			return err
		}
		w.service = b
		return w.admins[0].Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: serviceName},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: int32(port)}}},
		})
	}
}

// urlFlag stands for the flag that has API servers call by a URL, whose port is
// known when the world is made.
const urlFlag = "--webhook-url"

// endpointFlags are flags of a manager, with those of where it is called.
func (w *world) endpointFlags(flags []string) []string {
	if i := slices.Index(flags, urlFlag); i >= 0 {
		return slices.Replace(slices.Clone(flags), i, i+1, urlFlag+"=https://"+w.service.Address())
	}
	return append([]string{w.serviceFlag()}, flags...)
}

func (w *world) serviceFlag() string {
	_, port, _ := net.SplitHostPort(w.service.Address())
	return "--webhook-service=" + systemNamespace + "/" + serviceName + ":" + port
}

func (w *world) makeToken(ctx context.Context) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: account}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](48 * 3600)}}
	if err := w.admins[0].SubResource("token").Create(ctx, sa, token); err != nil {
		return fmt.Errorf("requesting the manager's token: %w", err)
	}
	w.token = token.Status.Token
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await tries until it works.
func await(t *testing.T, what string, try func() error) time.Duration {
	t.Helper()
	return awaitFor(t, timeout, what, try)
}

func awaitFor(t *testing.T, limit time.Duration, what string, try func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := try()
		took := time.Since(began)
		if err == nil {
			return took
		}
		if took > limit {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("waiting for %s: %v", what, t.Context().Err())
		case <-time.After(150 * time.Millisecond): // looking takes CPU too
		}
	}
}

// pause lets time pass.
func pause(t *testing.T, d time.Duration) {
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}
