package certmanager

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/balancer"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	system      = "ostiary-system"
	certificate = "ostiary-certificate" // the Certificate and its Secret
	timeout     = 4 * time.Minute
	good, bad   = "good", "bad"
)

const policy = `
apiVersion: v1
kind: Namespace
metadata: {name: probed}
---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: verdict}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: probed}}
  validations:
  - {expression: 'object.data.verdict == "good"', message: refused by the policy}
`

// cluster is a control plane with the manager, as an installation has it, and
// cert-manager beside it.
type cluster struct {
	client.WithWatch
	t       *testing.T
	plane   *controlplane.ControlPlane
	program string
	address *balancer.Balancer
	member  *controlplane.Running
	backend string
	count   int

	mu   sync.Mutex
	keys map[string]bool // lines of every private key that there was
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, plane: cptest.Run(t, controlplane.Options{NoControllerManager: true}), keys: map[string]bool{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme, cmapi.AddToScheme} {
		c.must(add(scheme))
	}
	var err error
	c.WithWatch, err = client.NewWithWatch(c.plane.Config(), client.Options{Scheme: scheme})
	c.must(err)
	for _, args := range [][]string{
		{"-k", "../../config/namespace"}, {"-k", "../../config/crd"}, {"-k", "../../config/rbac"},
		{"-f", "../../config/components/certmanager/role.yaml"},
	} {
		c.kubectl("", append([]string{"apply"}, args...)...)
	}
	c.kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "crd/webhookpolicies."+v1alpha1.GroupName)
	c.program = filepath.Join(t.TempDir(), "ostiary")
	c.must(controlplane.BuildManager(t.Context(), "../..", c.program))
	c.address, err = balancer.Listen("127.0.0.1:0", balancer.RoundRobin)
	c.must(err)
	t.Cleanup(c.address.Close)
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) kubectl(stdin string, args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), c.plane.Kubectl(), append([]string{"--kubeconfig", c.plane.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// manage has a manager with these flags take over from the one before. It has
// the permissions of an installation, and no more.
func (c *cluster) manage(flags ...string) {
	c.t.Helper()
	kubeconfig := filepath.Join(c.t.TempDir(), "kubeconfig")
	c.must(c.plane.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+system+":ostiary", "system:serviceaccounts",
		"system:serviceaccounts:"+system, "system:authenticated"))
	c.count++
	var backend string
	before := c.member
	next, err := c.plane.Run(c.t.Context(), controlplane.Program{
		Name: fmt.Sprintf("ostiary-%d", c.count), Path: c.program, Ports: 2,
		Env: []string{fmt.Sprintf("POD_NAME=ostiary-%d", c.count)},
		Args: func(ports []int) []string {
			backend = fmt.Sprintf("127.0.0.1:%d", ports[0])
			return append([]string{
				"--kubeconfig=" + kubeconfig, "--webhook-address=" + backend, "--webhook-url=https://" + c.address.Address(),
				fmt.Sprintf("--health-address=127.0.0.1:%d", ports[1]), "--metrics-address=0", "--drain-min=1s",
				"--trust-overlap=5s", "--log-level=debug",
			}, flags...)
		},
		Probes: func(ports []int) []string {
			if before == nil {
				return nil // there is no certificate yet
			}
			return []string{fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[1])}
		},
	})
	c.must(err)
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Log(next.LogTail())
		}
		next.Kill()
	})
	c.address.Add(backend)
	if before != nil {
		c.address.Drop(c.backend)
		c.must(before.Signal(syscall.SIGTERM)) // it drains while the test goes on
	}
	c.member, c.backend = next, backend
}

func (c *cluster) secret(name string) *corev1.Secret {
	var s corev1.Secret
	if err := c.Get(c.t.Context(), client.ObjectKey{Namespace: system, Name: name}, &s); client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return &s
}

// watchKeys collects the private keys, to look for them where they must not be.
func (c *cluster) watchKeys() {
	w, err := c.Watch(c.t.Context(), &corev1.SecretList{}, client.InNamespace(system))
	c.must(err)
	c.t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			s, ok := event.Object.(*corev1.Secret)
			if !ok {
				continue
			}
			c.mu.Lock()
			for line := range strings.Lines(string(s.Data["tls.key"])) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
					c.keys[line] = true
				}
			}
			c.mu.Unlock()
		}
	}()
}

// awaitIssued waits until what cert-manager has issued is served, nothing else is
// trusted, and it is not what was issued before.
func (c *cluster) awaitIssued(before []byte) (issued []byte, epoch string) {
	c.t.Helper()
	NewWithT(c.t).Eventually(func() error {
		source, serving, ca := c.secret(certificate), c.secret("ostiary-serving"), c.secret("ostiary-ca")
		issued, epoch = source.Data["tls.crt"], string(ca.Data["epoch"])
		switch {
		case len(issued) == 0 || bytes.Equal(issued, before):
			return errors.New("nothing new has been issued")
		case !bytes.Equal(serving.Data["tls.crt"], issued):
			return errors.New("it is not served yet")
		case ca.Data["previous.crt"] != nil || !bytes.Equal(serving.Data["ca.crt"], source.Data["ca.crt"]):
			return errors.New("the CA before is still trusted")
		case len(ca.Data["tls.key"]) > 0:
			return errors.New("Ostiary holds the key of a CA")
		}
		return nil
	}, timeout, 100*time.Millisecond).Should(Succeed())
	return issued, epoch
}

// renew asks cert-manager for another certificate, as its command line tool does.
func (c *cluster) renew() {
	c.t.Helper()
	NewWithT(c.t).Eventually(func() error {
		var cert cmapi.Certificate
		if err := c.Get(c.t.Context(), client.ObjectKey{Namespace: system, Name: certificate}, &cert); err != nil {
			return err
		}
		now := metav1.Now()
		cert.Status.Conditions = append(cert.Status.Conditions, cmapi.CertificateCondition{
			Type: cmapi.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
			Message: "the test asks for it", LastTransitionTime: &now, ObservedGeneration: cert.Generation,
		})
		return c.Status().Update(c.t.Context(), &cert)
	}, timeout, 100*time.Millisecond).Should(Succeed())
}

// putCA makes a CA for the issuer, or another one in its place.
func (c *cluster) putCA(name string) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.must(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	c.must(err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	c.must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	c.must(err)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "internal-ca"},
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{
			"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		}}
	if err := c.Create(c.t.Context(), s); err != nil {
		c.must(c.Update(c.t.Context(), s))
	}
}

func (c *cluster) issuer(name string, config cmapi.IssuerConfig) {
	c.t.Helper()
	c.must(c.Create(c.t.Context(), &cmapi.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}, Spec: cmapi.IssuerSpec{IssuerConfig: config},
	}))
}

// awaitRegistered waits for the condition of the policy, with a text in it.
func (c *cluster) awaitRegistered(status metav1.ConditionStatus, text string) {
	c.t.Helper()
	NewWithT(c.t).Eventually(func() (string, error) {
		var p v1alpha1.WebhookPolicy
		err := c.Get(c.t.Context(), client.ObjectKey{Name: "verdict"}, &p)
		for _, condition := range p.Status.Conditions {
			if condition.Type == v1alpha1.ConditionRegistered {
				return fmt.Sprintf("%s %s", condition.Status, condition.Message), err
			}
		}
		return "no condition", err
	}, timeout, 100*time.Millisecond).Should(And(HavePrefix(string(status)), ContainSubstring(text)))
}

func (c *cluster) events() string {
	var list eventsv1.EventList
	c.must(c.List(c.t.Context(), &list, client.InNamespace("")))
	var out strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&out, "%s %s %s: %s\n", e.Type, e.Reason, e.Regarding.Name, e.Note)
	}
	return out.String()
}

// probe asks the API server for what the policy judges.
func (c *cluster) probe(ctx context.Context, verdict string) error {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "probed", GenerateName: "probe-"},
		Data:       map[string]string{"verdict": verdict},
	}
	err := c.Create(ctx, object, client.DryRunAll)
	denied := err != nil && strings.Contains(err.Error(), "refused by the policy")
	switch {
	case verdict == bad && err == nil:
		return errors.New("wrongly allowed")
	case verdict == good && err != nil, verdict == bad && !denied:
		return fmt.Errorf("failed: %w", err)
	}
	return nil
}

// traffic sends requests until it is stopped, and fails the test for each that
// does not get its answer.
func (c *cluster) traffic() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var group sync.WaitGroup
	var sent, failed atomic.Int64
	for i := range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := c.probe(ctx, []string{good, bad}[i%2]); err != nil && ctx.Err() == nil {
					if failed.Add(1) < 5 {
						c.t.Errorf("%s: %v", []string{good, bad}[i%2], err)
					}
				}
				sent.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		group.Wait()
		c.t.Logf("%d requests, %d failed", sent.Load(), failed.Load())
		if failed.Load() > 0 || sent.Load() < 200 {
			c.t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
		}
	})
}

// TestCertManager begins without cert-manager, and has its real controllers
// renew, reissue and change who issues, while requests go on.
func TestCertManager(t *testing.T) {
	c := newCluster(t)
	c.watchKeys()
	c.manage("--cert-manager-issuer=self-signed")
	c.kubectl(policy, "apply", "-f", "-")
	c.awaitRegistered(metav1.ConditionFalse, "the API server has no resource Certificate of cert-manager.io/v1: install cert-manager")

	module, err := exec.CommandContext(t.Context(), "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}",
		"github.com/cert-manager/cert-manager").Output()
	c.must(err)
	files, err := manifests(strings.TrimSpace(string(module)))
	c.must(err)
	for _, file := range files {
		c.kubectl("", "apply", "--server-side", "-f", file)
	}
	c.kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := runControllers(ctx, c.plane.Kubeconfig(), system)
	c.must(err)
	t.Cleanup(func() { cancel(); _ = wait() })
	c.awaitRegistered(metav1.ConditionFalse, `waits for Issuer self-signed`)

	c.issuer("self-signed", cmapi.IssuerConfig{SelfSigned: &cmapi.SelfSignedIssuer{}})
	issued, epoch := c.awaitIssued(nil)
	c.awaitRegistered(metav1.ConditionTrue, "")
	NewWithT(t).Eventually(func() error { return c.probe(t.Context(), bad) }, timeout, 100*time.Millisecond).Should(Succeed())
	stop := c.traffic()
	defer stop()

	step := func(what string, anotherCA bool, do func()) {
		t.Helper()
		began, old := time.Now(), epoch
		do()
		issued, epoch = c.awaitIssued(issued)
		t.Logf("%s: epoch %s to %s in %s", what, old, epoch, time.Since(began).Round(time.Second))
		if (epoch != old) != anotherCA {
			t.Errorf("%s: the epoch goes from %s to %s, another CA: %t", what, old, epoch, anotherCA)
		}
	}
	step("self-signed, renewed", true, c.renew)
	c.putCA("first")
	c.issuer("internal", cmapi.IssuerConfig{CA: &cmapi.CAIssuer{SecretName: "internal-ca"}})
	step("issuer changed", true, func() { c.manage("--cert-manager-issuer=Issuer/internal") })
	step("CA issuer, renewed", false, c.renew)
	step("reissued by another CA", true, func() { c.putCA("second"); c.renew() })
	step("the Secret is deleted", false, func() { c.must(c.Delete(t.Context(), c.secret(certificate))) })

	c.must(c.Delete(t.Context(), &cmapi.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "internal"}}))
	c.renew()
	c.must(c.Delete(t.Context(), c.secret(certificate)))
	NewWithT(t).Eventually(func() (string, error) {
		log, err := os.ReadFile(c.plane.LogFile(fmt.Sprintf("ostiary-%d", c.count)))
		return string(log), err
	}, timeout, 200*time.Millisecond).Should(ContainSubstring("waits for Issuer internal"))
	stop()
	c.checkNoKeys()
}

func (c *cluster) checkNoKeys() {
	texts := map[string]string{"events": c.events(), "policies": c.kubectl("", "get", "webhookpolicies", "-o", "yaml")}
	texts["certificates"] = c.kubectl("", "-n", system, "get", "certificates,certificaterequests,leases", "-o", "yaml")
	for i := range c.count {
		log, err := os.ReadFile(c.plane.LogFile(fmt.Sprintf("ostiary-%d", i+1)))
		c.must(err)
		texts[fmt.Sprintf("log %d", i+1)] = string(log)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) < 6 {
		c.t.Errorf("only %d lines of keys were seen", len(c.keys))
	}
	for name, text := range texts {
		for key := range c.keys {
			if strings.Contains(text, key) {
				c.t.Errorf("a private key is in the %s", name)
			}
		}
	}
}
