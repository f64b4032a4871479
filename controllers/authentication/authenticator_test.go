package authentication

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/internal/authentication"
)

// issued is a CA and a client certificate of it for the name "caller".
type issued struct {
	pem  []byte
	leaf *x509.Certificate
}

func issue(t *testing.T) issued {
	t.Helper()
	make := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	from, to := time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	ca, key := make(&x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true,
		Subject: pkix.Name{CommonName: "ca"}, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	leaf, _ := make(&x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to, Subject: pkix.Name{CommonName: "caller"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, key)
	return issued{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), leaf}
}

// request returns a request with the given credentials.
func request(leaf *x509.Certificate, authorization string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.TLS = &tls.ConnectionState{}
	if leaf != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{leaf}
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func reasonOf(err error) authentication.Reason {
	var rejected *authentication.RejectedError
	if errors.As(err, &rejected) {
		return rejected.Reason
	}
	return ""
}

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, line)
	}, funcr.Options{})
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.text, "\n")
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantProblem(t *testing.T, g *Authenticator, source string, want float64) {
	t.Helper()
	if got := testutil.ToFloat64(g.problem.WithLabelValues(source)); got != want {
		t.Errorf("ostiary_webhook_caller_source_problem{source=%q} is %v, want %v", source, got, want)
	}
}

func TestNewRefuses(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "ca.crt")
	write(t, garbage, []byte("garbage"))
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"nothing is given": {options: Options{}, want: "configuring authentication: specify a client CA or a Secret"},
		"no file": {
			options: Options{CAFile: "/nonexistent/ca.crt", Names: []string{"a"}},
			want:    "--client-ca /nonexistent/ca.crt: no such file or directory",
		},
		"no certificate": {options: Options{CAFile: garbage, Names: []string{"a"}}, want: "--client-ca " + garbage + ": "},
	} {
		t.Run(name, func(t *testing.T) {
			tc.options.Clock, tc.options.Log = clock.RealClock{}, logr.Discard()
			if _, err := New(tc.options); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("New() = %v, want an error that begins with %q", err, tc.want)
			}
		})
	}
}

// TestCAFile changes the file in steps. Its last valid content stays in use.
func TestCAFile(t *testing.T) {
	first, second := issue(t), issue(t)
	path := filepath.Join(t.TempDir(), "ca.crt")
	write(t, path, first.pem)
	log := &lines{}
	registry := prometheus.NewRegistry()
	g, err := New(Options{CAFile: path, Names: []string{"caller"}, Clock: clock.RealClock{}, Log: log.logger(), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name        string
		change      func()
		accepted    *x509.Certificate
		rejected    *x509.Certificate
		wantProblem float64
		wantLog     string // "" is none
	}{
		{name: "as it was at the start", change: func() {}, accepted: first.leaf, rejected: second.leaf},
		{
			name:        "half written",
			change:      func() { write(t, path, second.pem[:40]) },
			accepted:    first.leaf,
			rejected:    second.leaf,
			wantProblem: 1,
			wantLog:     "keeping the last ones",
		},
		{name: "still half written", change: func() {}, accepted: first.leaf, rejected: second.leaf, wantProblem: 1},
		{
			name:        "gone",
			change:      func() { _ = os.Remove(path) },
			accepted:    first.leaf,
			rejected:    second.leaf,
			wantProblem: 1,
			wantLog:     "no such file or directory",
		},
		{
			name:        "too large",
			change:      func() { write(t, path, append(second.pem, make([]byte, maxFile)...)) },
			accepted:    first.leaf,
			rejected:    second.leaf,
			wantProblem: 1,
			wantLog:     "keeping the last ones",
		},
		{
			name:     "another CA",
			change:   func() { write(t, path, second.pem) },
			accepted: second.leaf,
			rejected: first.leaf,
			wantLog:  "read the accepted callers",
		},
		{name: "both", change: func() { write(t, path, append(second.pem, first.pem...)) }, accepted: first.leaf},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			before := len(log.text)
			step.change()
			g.refreshAll()
			if err := g.Authenticate(request(step.accepted, "")); err != nil {
				t.Errorf("rejected: %v", err)
			}
			if step.rejected != nil {
				if got := reasonOf(g.Authenticate(request(step.rejected, ""))); got != authentication.ReasonCertificate {
					t.Errorf("the other one is rejected for %q, want %q", got, authentication.ReasonCertificate)
				}
			}
			wantProblem(t, g, "client_ca", step.wantProblem)
			if err := g.Ready(); err != nil {
				t.Errorf("Ready() = %v", err)
			}
			news := strings.Join(log.text[before:], "\n")
			if step.wantLog == "" && news != "" || !strings.Contains(news, step.wantLog) {
				t.Errorf("logged %q, want %q", news, step.wantLog)
			}
		})
	}
	if n, err := testutil.GatherAndCount(registry, "ostiary_webhook_caller_source_problem"); n != 1 || err != nil {
		t.Errorf("%d series are published: %v; want 1", n, err)
	}
}

// TestSecret creates, corrupts, deletes and recreates a Secret. The integration
// tests cover reading it from an API server.
func TestSecret(t *testing.T) {
	const secret = "a-token-that-must-stay-secret"
	log := &lines{}
	g, err := New(Options{
		TokenSecret: "tokens",
		BasicSecret: "users",
		Namespace:   "ns",
		Clock:       clock.RealClock{},
		Log:         log.logger(),
		Registerer:  prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	g.sources[1].read = func() (authentication.Method, error) { // in the order of New: basic is second, and well all the time
		return authentication.NewPasswords(map[string][]byte{"username": []byte("ann"), "password": []byte("another-secret-that-is-long")})
	}
	holds := func(data map[string][]byte) func() (authentication.Method, error) {
		return func() (authentication.Method, error) { return authentication.NewTokens(data) }
	}
	missing := func() (authentication.Method, error) { return nil, errNoSecret }
	for _, step := range []struct {
		name        string
		read        func() (authentication.Method, error)
		want        authentication.Reason // of a caller with the token
		wantProblem float64
		wantReady   string
	}{
		{
			name:        "not there yet",
			read:        missing,
			want:        authentication.ReasonNotLoaded,
			wantProblem: 1,
			wantReady:   "the accepted callers have not been loaded yet: Secret ns/tokens: it does not exist or has not been read yet",
		},
		{
			name:        "without a token",
			read:        holds(nil),
			want:        authentication.ReasonNotLoaded,
			wantProblem: 1,
			wantReady:   "the accepted callers have not been loaded yet: Secret ns/tokens: ",
		},
		{name: "there", read: holds(map[string][]byte{"token": []byte(secret)})},
		{name: "spoilt", read: holds(map[string][]byte{"token": []byte("x")}), wantProblem: 1},
		{name: "gone", read: missing, wantProblem: 1},
		{
			name: "with another token",
			read: holds(map[string][]byte{"token": []byte("quite-another-token-of-some-length")}),
			want: authentication.ReasonToken,
		},
	} {
		t.Run(step.name, func(t *testing.T) {
			g.sources[0].read = step.read
			g.refreshAll()
			if got := reasonOf(g.Authenticate(request(nil, "bearer "+secret))); got != step.want {
				t.Errorf("rejected for %q, want %q", got, step.want)
			}
			r := request(nil, "")
			r.SetBasicAuth("ann", "another-secret-that-is-long")
			if err := g.Authenticate(r); err != nil {
				t.Errorf("a user of the other Secret is rejected: %v", err)
			}
			wantProblem(t, g, "token", step.wantProblem)
			wantProblem(t, g, "basic", 0)
			err := g.Ready()
			if step.wantReady == "" && err != nil || step.wantReady != "" && (err == nil || !strings.HasPrefix(err.Error(), step.wantReady)) {
				t.Errorf("Ready() = %v, want %q", err, step.wantReady)
			}
		})
	}
	if text := log.all(); strings.Contains(text, secret) || strings.Contains(text, "another") {
		t.Errorf("a secret was logged:\n%s", text)
	}
}

// TestFileIsFollowed checks that the file is read again from time to time.
func TestFileIsFollowed(t *testing.T) {
	first, second := issue(t), issue(t)
	path := filepath.Join(t.TempDir(), "ca.crt")
	write(t, path, first.pem)
	fake := testclock.NewFakeClock(time.Now())
	g, err := New(Options{CAFile: path, Names: []string{"caller"}, Clock: fake, Log: logr.Discard(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Start(ctx) }()
	write(t, path, second.pem)
	if err := g.Authenticate(request(second.leaf, "")); err == nil {
		t.Error("the new CA is known before the file was read again")
	}
	for end := time.Now().Add(time.Minute); g.Authenticate(request(second.leaf, "")) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the file was not read again")
		}
		if fake.HasWaiters() {
			fake.Step(pollInterval)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Start() = %v", err)
	}
}

// TestWithoutSources checks the readiness of a replica that accepts all callers.
func TestWithoutSources(t *testing.T) {
	if err := (*Authenticator)(nil).Ready(); err != nil {
		t.Errorf("Ready() = %v, want nil", err)
	}
}
