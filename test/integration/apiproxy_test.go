package integration

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
)

// gate stands between a manager and its API server, and keeps requests back:
// what an API server does that is overloaded, or behind a network that is.
type gate struct {
	kubeconfig string // for a manager that goes through it
	cut        func() // ends what is under way, such as watches

	mu     sync.Mutex
	faults map[string]fault // by a part of the path
	taboos map[string]bool  // parts of configurations that are refused
	minor  string           // version that the API server claims; empty: its own
}

type fault int

const (
	// disconnects closes the connection without an answer.
	disconnects fault = iota
	// silent never answers.
	silent
)

// gate opens one, which closes with the test.
func (c *cluster) gate(t *testing.T) *gate {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.config.CAData)
	target, err := url.Parse(c.config.Host)
	must(t, err)
	g := &gate{kubeconfig: filepath.Join(t.TempDir(), "gate.kubeconfig"), faults: map[string]fault{}, taboos: map[string]bool{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 64},
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if taboo := g.tabooIn(r); taboo != "" {
			invalid(w, taboo)
			return
		}
		if minor := g.claimed(); minor != "" && r.URL.Path == "/version" {
			_ = json.NewEncoder(w).Encode(apiversion.Info{Major: "1", Minor: minor})
			return
		}
		switch f, ok := g.faultOf(r.URL.Path); {
		case !ok:
			proxy.ServeHTTP(w, r)
		case f == silent:
			_, _ = io.Copy(io.Discard, r.Body) // the server notices only then that the client leaves
			<-r.Context().Done()
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	g.cut = server.CloseClientConnections
	t.Cleanup(g.cut)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	must(t, err)
	for _, entry := range config.Clusters {
		entry.Server, entry.CertificateAuthorityData = server.URL, authority
	}
	must(t, clientcmd.WriteToFile(*config, g.kubeconfig))
	return g
}

// behind gives the shared manager started anew, with all it asks the API server
// going through the gate. The next test gets another.
func (c *cluster) behind(t *testing.T, g *gate, flags ...string) *process {
	t.Helper()
	m := c.restarted(t, append(flags, "--kubeconfig="+g.kubeconfig)...)
	m.awaitReady(t)
	c.awaitLeader(t)
	return m
}

// claim has the API server claim a minor version of Kubernetes.
func (g *gate) claim(minor string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.minor = minor
}

func (g *gate) claimed() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.minor
}

func (g *gate) faultOf(path string) (fault, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for part, f := range g.faults {
		if strings.Contains(path, part) {
			return f, true
		}
	}
	return 0, false
}

// keep keeps back the requests for paths with a part, until the end of the test
// or until open is called.
func (g *gate) keep(t *testing.T, part string, f fault) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[part] = f
	open = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.faults, part)
	}
	t.Cleanup(open)
	return open
}

// refuse has the API server refuse configurations that contain a text, as one
// does that knows a rule which Ostiary does not, until allow is called.
func (g *gate) refuse(t *testing.T, text string) (allow func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taboos[text] = true
	allow = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.taboos, text)
	}
	t.Cleanup(allow)
	return allow
}

// tabooIn is what a request to write a configuration contains that is refused.
func (g *gate) tabooIn(r *http.Request) string {
	if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "webhookconfigurations") {
		return ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.mu.Lock()
	defer g.mu.Unlock()
	for text := range g.taboos {
		if bytes.Contains(body, []byte(text)) {
			return text
		}
	}
	return ""
}

// invalid answers as an API server does whose validation finds a mistake.
func invalid(w http.ResponseWriter, text string) {
	status := apierrors.NewInvalid(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}, "it",
		field.ErrorList{field.Invalid(field.NewPath("webhooks"), text, "this API server does not like it")}).Status()
	status.APIVersion, status.Kind = "v1", "Status"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
