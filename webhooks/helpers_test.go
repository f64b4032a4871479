package webhooks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/registration"
)

// evaluatorFunc is an Evaluator made of a function.
type evaluatorFunc func(ctx context.Context, group registration.GroupKey, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

func (f evaluatorFunc) Evaluate(ctx context.Context, group registration.GroupKey,
	req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return f(ctx, group, req)
}

// Review calls the function with a group that has the name review.
func (f evaluatorFunc) Review(ctx context.Context, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return f(ctx, registration.GroupKey{Phase: "review"}, req)
}

// allowAll returns an evaluator that allows everything.
func allowAll() Evaluator {
	return evaluatorFunc(func(context.Context, registration.GroupKey, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
}

// pair is a certificate for 127.0.0.1 and the Service checks in the namespace shop, and the pool and PEM that trust it.
type pair struct {
	certificate tls.Certificate
	pool        *x509.CertPool
	pem         []byte
}

func newPair(tb testing.TB) pair {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{"checks.shop.svc"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return pair{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		pool:        pool,
		pem:         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
}

func (p pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &p.certificate, nil }

// running is a server that serves on a loopback port.
type running struct {
	*Server
	pair
	address string
	stop    context.CancelFunc
	ended   chan error
}

func (r *running) url(path string) string { return "https://" + r.address + path }

// acceptsAll is for tests that are not about capabilities: their paths have none.
func acceptsAll(string) bool { return true }

// client returns a client that trusts the server and keeps connections, and that does not try again.
func (r *running) client(tb testing.TB) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.pool}, MaxIdleConnsPerHost: 64}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitTimeout}
}

// start serves with options, completed with what tests have in common, until the test ends. Handshakes, headers and
// bodies do not time out unless a test changes that, because they can take long on a busy machine.
func start(tb testing.TB, o Options, change ...func(*Server)) *running {
	tb.Helper()
	if o.Listener == nil {
		var err error
		if o.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			tb.Fatal(err)
		}
	}
	p := newPair(tb)
	o.GetCertificate = p.get
	if o.Accepts == nil {
		o.Accepts = acceptsAll
	}
	if o.Evaluator == nil {
		o.Evaluator = allowAll()
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if o.Drain == (Drain{}) {
		o.Drain = Drain{Min: time.Millisecond, Quiet: time.Millisecond, Max: 20 * time.Millisecond}
	}
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.timeouts.Handshake, s.timeouts.Header, s.handler.bodies.timeout = time.Hour, time.Hour, time.Hour
	for _, f := range change {
		f(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, pair: p, address: o.Listener.Addr().String(), stop: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- s.Start(ctx); close(r.ended) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-r.ended; err != nil {
			tb.Errorf("the server ended with %v", err)
		}
	})
	return r
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}
