package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/controllers/metricsaccess"
	"github.com/ostiary/ostiary/internal/connections"
)

// waitTimeout is how long tests wait for an event that must happen.
const waitTimeout = 2 * time.Minute

// runningPort is a port that is served until the test ends.
type runningPort struct {
	address string
	open    *connections.Listener
	client  *http.Client // with a new connection for each request
	url     string
}

func servePort(t *testing.T, p port, client *http.Client) *runningPort {
	t.Helper()
	p.address = "127.0.0.1:0"
	server, err := p.server(t.Context(), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	r := &runningPort{address: server.Listener.Addr().String(), open: server.Listener.(*connections.Listener), client: client, url: "http://"}
	if p.tls != nil {
		r.url = "https://"
	}
	r.url += r.address
	return r
}

// get returns the status and the body of an answer.
func (r *runningPort) get(path, token string) (int, string, error) {
	request, err := http.NewRequest(http.MethodGet, r.url+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := r.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// flood opens connections with an unfinished request from another address, and leaves them open until the test ends.
func (r *runningPort) flood(t *testing.T, n int, config *tls.Config) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for i := range n {
		c, err := dialer.Dial("tcp", r.address)
		if err != nil {
			t.Fatalf("after %d connections: %v", i, err)
		}
		t.Cleanup(func() { c.Close() })
		if config != nil {
			c = tls.Client(c, config)
		}
		_, _ = fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: %s", strings.Repeat("a", 3500)) // it may be cut off
	}
}

// certificate returns one for 127.0.0.1, and a configuration that trusts it.
func certificate() (tls.Certificate, *tls.Config) {
	source := httptest.NewTLSServer(nil)
	source.Close()
	roots := x509.NewCertPool()
	roots.AddCert(source.Certificate())
	return source.TLS.Certificates[0], &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}
}

// heap returns the size of the live heap.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

const (
	// floodSize is the number of connections of a flood, several times the limit.
	floodSize = 2000
	// floodLimit is the number of them that may be open.
	floodLimit = 512
	// floodHeap bounds the growth of the heap by the connections that are held, with those of the clients in this process.
	floodHeap = 160 << 20
)

// TestMetricsPortFlood leaves 2,000 TLS connections with an unfinished request open. A scraper is answered meanwhile, on
// the connection that it keeps and on new ones.
func TestMetricsPortFlood(t *testing.T) {
	served, trust := certificate()
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		return true, &authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{Authenticated: true}}, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
	transport := &http.Transport{TLSClientConfig: trust}
	t.Cleanup(transport.CloseIdleConnections)
	r := servePort(t, port{
		name: "metrics", write: scrapeTimeout, keepAlive: true,
		handler: metricsaccess.New(metricsaccess.Options{Client: client, Next: metrics, Clock: clock.RealClock{}, Log: logr.Discard()}),
		tls:     metricsTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &served, nil }),
	}, &http.Client{Transport: transport, Timeout: waitTimeout})
	anew := *r
	anew.client = &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}, Timeout: waitTimeout}
	scrape := func(when string) {
		t.Helper()
		for name, scraper := range map[string]*runningPort{"kept": r, "new": &anew} {
			if code, body, err := scraper.get("/metrics", "reader"); code != http.StatusOK || body != "metrics" {
				t.Errorf("%s, on a %s connection: %d %q %v", when, name, code, body, err)
			}
		}
	}
	scrape("before the flood")
	before := heap()
	for i := range 10 {
		r.flood(t, floodSize/10, trust)
		scrape(fmt.Sprintf("beside %d connections", (i+1)*floodSize/10))
	}
	if got := r.open.Count(); got > floodLimit {
		t.Errorf("%d connections are open, want at most %d", got, floodLimit)
	}
	if after := heap(); after > before+floodHeap {
		t.Errorf("the heap grew from %d to %d bytes, want at most %d more", before, after, floodHeap)
	}
}

// TestHealthPortFlood leaves 2,000 connections with an unfinished request open. A probe is answered meanwhile, and ends its
// connection.
func TestHealthPortFlood(t *testing.T) {
	handler := probeHandler(nil)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitTimeout}
	r := servePort(t, port{name: "probes", handler: handler, write: portTimeout}, client)
	probe := func(when string) {
		t.Helper()
		if code, body, err := r.get("/readyz", ""); code != http.StatusOK || body != "ok" {
			t.Errorf("%s: %d %q %v", when, code, body, err)
		}
	}
	probe("before the flood")
	before := heap()
	for i := range 10 {
		r.flood(t, floodSize/10, nil)
		probe(fmt.Sprintf("beside %d connections", (i+1)*floodSize/10))
	}
	if got := r.open.Count(); got > floodLimit {
		t.Errorf("%d connections are open, want at most %d", got, floodLimit)
	}
	if after := heap(); after > before+floodHeap {
		t.Errorf("the heap grew from %d to %d bytes, want at most %d more", before, after, floodHeap)
	}
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(waitTimeout))
	_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	if answer, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(answer), "\r\n\r\nok") {
		t.Errorf("answer %q, error %v, want ok and the end of the connection", answer, err)
	}
}

// TestProbes checks the paths of the probes, which controller-runtime's have, too.
func TestProbes(t *testing.T) {
	handler := probeHandler(map[string]func() error{
		"good": func() error { return nil },
		"bad":  func() error { return errors.New("not loaded") },
	})
	for path, want := range map[string]string{
		"/healthz":                    "200 ok",
		"/healthz/process":            "200 ok",
		"/readyz":                     "500 [-]bad failed: reason withheld\n[+]good ok\nhealthz check failed\n",
		"/readyz?exclude=bad":         "200 ok",
		"/readyz/good":                "200 ok",
		"/readyz/bad":                 "500 internal server error: not loaded\n",
		"/readyz/none":                "404 404 page not found\n",
		"/metrics":                    "404 404 page not found\n",
		"/readyz?verbose&exclude=bad": "200 [+]bad excluded: ok\n[+]good ok\nhealthz check passed\n",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestAddressInUse checks that an address in use is an error at the start.
func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	_, err = port{name: "probes", address: address}.server(t.Context(), logr.Discard())
	if want := "listening for probes: listen tcp " + address + ": bind: address already in use"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
