package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/internal/pki"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	timeout = time.Minute
	pause   = 20 * time.Millisecond
	day     = 24 * time.Hour
)

var (
	serverNames = ServerNames{
		DNS: []string{"ostiary-webhook.ostiary-system.svc"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	apiServer *rest.Config
)

func TestMain(m *testing.M) {
	os.Exit(cptest.Main(m, controlplane.Options{NoControllerManager: true}, func(cp *controlplane.ControlPlane) { apiServer = cp.Config() }))
}

// testEnvironment is a namespace, a clock and a log of one test.
type testEnvironment struct {
	t        *testing.T
	client   kubernetes.Interface
	clock    *clocktesting.FakeClock
	registry *prometheus.Registry
	options  Options
	log      *logBuffer
	provider *Provider // the last started one

	mu   sync.Mutex
	keys map[string]bool
}

func newTestEnvironment(t *testing.T) *testEnvironment {
	t.Helper()
	config := rest.CopyConfig(apiServer)
	config.QPS = -1
	w := &testEnvironment{
		t:        t,
		client:   kubernetes.NewForConfigOrDie(config),
		clock:    clocktesting.NewFakeClock(time.Now()),
		registry: prometheus.NewRegistry(),
		log:      &logBuffer{},
		keys:     map[string]bool{},
	}
	ns, err := w.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "certificates-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.options = Options{
		Namespace:   ns.Name,
		ServerNames: serverNames,
		Clock:       w.clock,
		Log:         funcr.New(func(prefix, args string) { w.log.add(prefix + " " + args) }, funcr.Options{Verbosity: 10}),
		Registerer:  w.registry,
		ServerTime:  w.clock.Now,
		Published:   func(context.Context) (Published, error) { return Published{}, nil },
		LeaseReady:  func() error { return nil },
		Events:      &eventRecorder{},
	}
	t.Cleanup(w.checkLog)
	return w
}

// checkLog fails the test if the log contains a key at any verbosity.
func (w *testEnvironment) checkLog() {
	for _, name := range []string{caName, servingName} {
		if s, err := w.client.CoreV1().Secrets(w.options.Namespace).Get(context.Background(), name, metav1.GetOptions{}); err == nil {
			w.remember(s)
		}
	}
	if w.t.Failed() {
		w.t.Log(w.log.String())
	}
	if strings.Contains(w.log.String(), "-----BEGIN") {
		w.t.Error("the log holds PEM")
	}
	for key := range w.keys {
		for line := range strings.Lines(key) {
			if line = strings.TrimSpace(line); len(line) > 8 && strings.Contains(w.log.String(), line) {
				w.t.Errorf("the log holds the line %q of a key", line)
			}
		}
	}
}

func (w *testEnvironment) remember(s *corev1.Secret) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[string(s.Data[keyField])] = true
}

func (w *testEnvironment) secret(name string) *corev1.Secret {
	w.t.Helper()
	s, err := w.client.CoreV1().Secrets(w.options.Namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.remember(s)
	return s
}

// requestRotation requests a rotation like an operator.
func (w *testEnvironment) requestRotation(value string) {
	w.t.Helper()
	w.secret(caName) // so that checkLog knows its key
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, RotateAnnotation, value)
	if _, err := w.client.CoreV1().Secrets(w.options.Namespace).Patch(context.Background(), caName, types.MergePatchType,
		patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// put creates or replaces a Secret.
func (w *testEnvironment) put(name string, data map[string][]byte) {
	w.t.Helper()
	secrets := w.client.CoreV1().Secrets(w.options.Namespace)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: data}
	_, err := secrets.Update(context.Background(), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(context.Background(), s, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.remember(s)
}

// startProvider runs a Provider until the test ends.
func (w *testEnvironment) startProvider() *Provider {
	w.provider = NewProvider(w.client, w.options)
	w.run(w.provider.Start)
	return w.provider
}

// startRotator runs a Rotator until the test ends or stop is called.
func (w *testEnvironment) startRotator() (stop func()) {
	return w.run(w.rotator().Run)
}

// rotator returns a Rotator of the same process as the last Provider.
func (w *testEnvironment) rotator() *Rotator {
	provider := w.provider
	if provider == nil {
		provider = NewProvider(w.client, w.options)
	}
	return w.rotatorOf(provider, w.client)
}

// rotatorOf returns a Rotator of the same process as a Provider, the only replica.
func (w *testEnvironment) rotatorOf(provider *Provider, client kubernetes.Interface) *Rotator {
	o := w.withOwnMetrics()
	o.Replicas = func(context.Context) ([]pki.Replica, error) {
		return []pki.Replica{{Name: "alone", Epoch: provider.Committed()}}, nil
	}
	return NewRotator(client, provider, o)
}

func (w *testEnvironment) withOwnMetrics() Options {
	o := w.options
	o.Registerer = prometheus.NewRegistry()
	return o
}

func (w *testEnvironment) run(start func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), w.options.Log))
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *testEnvironment) state() (pki.State, error) {
	var f observedSecrets
	f, err := w.rotator().fetch(context.Background())
	if err == nil {
		err = f.damages
	}
	for _, s := range []*corev1.Secret{f.ca, f.serving} {
		if s != nil {
			w.remember(s)
		}
	}
	return f.state, err
}

// waitUntilSteady waits until nothing is left to do and the Provider serves the
// content of the Secret. It returns the content of the Secrets.
func (w *testEnvironment) waitUntilSteady(provider *Provider) pki.State {
	w.t.Helper()
	var state pki.State
	NewWithT(w.t).Eventually(func() error {
		var err error
		if state, err = w.state(); err != nil {
			return err
		}
		seen, err := w.rotator().observe(context.Background(), observedSecrets{state: state})
		if err != nil {
			return err
		}
		if a := pki.Next(state, seen, w.options.ServerNames, w.options.Lifetimes.WithDefaults()); a.Kind != pki.Wait || a.Reason != "" {
			w.clock.Step(time.Second) // trials end
			return fmt.Errorf("still to do: %+v", a)
		}
		if err := provider.Ready(); err != nil {
			return err
		}
		served, err := provider.GetCertificate(nil)
		if err != nil {
			return err
		}
		if !served.Leaf.Equal(state.Serving.Pair.Certificate()) || !bytes.Equal(provider.Bundle(), state.Serving.Bundle.PEM()) {
			return fmt.Errorf("the Provider serves %s", pki.Serial(served.Leaf))
		}
		return nil
	}, timeout, pause).Should(Succeed())
	return state
}

// serve answers on a loopback address as the webhook server would, and echoes.
func (w *testEnvironment) serve(provider *Provider) (address string) {
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: provider.GetCertificate})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// dial connects like an API server that trusts the bundle.
func (w *testEnvironment) dial(address, serverName string, bundle []byte) (*tls.Conn, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("unable to load root certificates")
	}
	return tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: serverName, Time: w.clock.Now, MinVersion: tls.VersionTLS13})
}

// servedSerial connects and returns the serial number of the presented
// certificate.
func (w *testEnvironment) servedSerial(address string, bundle []byte) (string, error) {
	conn, err := w.dial(address, serverNames.DNS[0], bundle)
	if err != nil {
		return "", err
	}
	serial := pki.Serial(conn.ConnectionState().PeerCertificates[0])
	return serial, conn.Close()
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.WriteString(line + "\n")
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// eventRecorder stores events.
type eventRecorder struct{ log logBuffer }

// Eventf implements events.EventRecorder.
func (r *eventRecorder) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.log.add(kind + " " + reason + ": " + fmt.Sprintf(note, args...))
}

func (r *eventRecorder) String() string { return r.log.String() }
