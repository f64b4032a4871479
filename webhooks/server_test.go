package webhooks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/internal/connections"
	"github.com/ostiary/ostiary/internal/registration"
)

// waitTimeout is how long tests wait for an event that must happen. Under the race detector, beside many other processes,
// events can take longer than a minute.
const waitTimeout = 3 * time.Minute

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain: %s", waitTimeout, what)
		}
	}
}

func TestTLSVersionAndProtocol(t *testing.T) {
	s := start(t, Options{})
	cases := map[string]struct {
		config    *tls.Config
		wantError string
	}{
		"TLS 1.3":               {config: &tls.Config{}},
		"HTTP/2 offered too":    {config: &tls.Config{NextProtos: []string{"h2", "http/1.1"}}},
		"TLS 1.2":               {config: &tls.Config{MaxVersion: tls.VersionTLS12}, wantError: "protocol version not supported"},
		"HTTP/2 only":           {config: &tls.Config{NextProtos: []string{"h2"}}, wantError: "no application protocol"},
		"certificate not known": {config: &tls.Config{RootCAs: newPair(t).pool}, wantError: "unknown authority"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := tc.config.Clone()
			if config.RootCAs == nil {
				config.RootCAs = s.pool
			}
			c, err := tls.Dial("tcp", s.address, config)
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Errorf("error %v, want one with %q", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if state := c.ConnectionState(); state.Version != tls.VersionTLS13 || state.NegotiatedProtocol == "h2" {
				t.Errorf("version %x, protocol %q", state.Version, state.NegotiatedProtocol)
			}
		})
	}
}

// TestHTTP2Preface checks that HTTP/2 without negotiation gets an error.
func TestHTTP2Preface(t *testing.T) {
	s := start(t, Options{})
	c := dialTLS(t, s)
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode < 400 || response.StatusCode > 599 {
		t.Errorf("code %d, want an error", response.StatusCode)
	}
}

// sendReview writes a request. The answer shows whether it arrived.
func sendReview(w io.Writer) {
	fmt.Fprintf(w, "POST /validate/group HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(validReview()), validReview())
}

func dialTLS(t *testing.T, s *running) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: s.pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestHandshakeErrors fails handshakes in every way and checks how they are counted.
func TestHandshakeErrors(t *testing.T) {
	dial := func(t *testing.T, s *running) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	handshake := func(t *testing.T, s *running, config *tls.Config) {
		t.Helper()
		c := tls.Client(dial(t, s), config)
		if err := c.Handshake(); err == nil {
			t.Error("the handshake succeeded")
		}
	}
	const soon = 300 * time.Millisecond
	cases := map[string]func(*testing.T, *running){
		"bad_certificate": func(t *testing.T, s *running) {
			handshake(t, s, &tls.Config{ServerName: "127.0.0.1", RootCAs: newPair(t).pool})
		},
		"alert": func(t *testing.T, s *running) {
			const alert, fatal, internalError = 21, 2, 80
			_, _ = dial(t, s).Write([]byte{alert, 3, 3, 0, 2, fatal, internalError})
		},
		"not_tls": func(t *testing.T, s *running) {
			_, _ = io.WriteString(dial(t, s), "POST /validate/group HTTP/1.1\r\nHost: x\r\n\r\n")
		},
		"timeout": func(t *testing.T, s *running) { dial(t, s) },
		"closed":  func(t *testing.T, s *running) { dial(t, s).Close() },
		"other": func(t *testing.T, s *running) {
			handshake(t, s, &tls.Config{ServerName: "127.0.0.1", RootCAs: s.pool, MaxVersion: tls.VersionTLS12})
		},
	}
	for reason, fail := range cases {
		t.Run(reason, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := start(t, Options{Registerer: registry}, func(s *Server) {
				if reason == "timeout" {
					s.timeouts.Handshake = soon
				}
			})
			fail(t, s)
			series := "ostiary_webhook_tls_handshake_errors_total reason=" + reason
			eventually(t, series, func() bool { return gather(t, registry)[series] == 1 })
			eventuallyAllowed(t, s)
		})
	}
}

// eventuallyAllowed waits until a review on a connection of its own is allowed: a handshake with a short timeout can fail
// on a busy machine.
func eventuallyAllowed(t *testing.T, s *running) {
	t.Helper()
	eventually(t, "a review is allowed", func() bool {
		response, err := s.client(t).Post(s.url("/validate/group"), contentType, strings.NewReader(validReview()))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// TestSlowClients checks that connections of slow and silent clients are closed. Only the timeout under test is short,
// because on a busy machine the client itself is slow.
func TestSlowClients(t *testing.T) {
	const soon = 50 * time.Millisecond
	header := "POST /validate/group HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
	slowBody := func(s *Server) { s.handler.bodies.timeout = soon }
	cases := map[string]struct {
		limit    func(*Server)
		sent     string
		wantCode string
	}{
		"nothing after the handshake": {
			limit: func(s *Server) { s.timeouts.Idle = soon },
		},
		"half a header": {
			limit: func(s *Server) { s.timeouts.Header = soon },
			sent:  header,
		},
		"half a body": {
			limit:    slowBody,
			sent:     header + "\r\n{",
			wantCode: "HTTP/1.1 408 Request Timeout",
		},
		"half a body, unknown path": {
			limit:    slowBody,
			sent:     strings.Replace(header, "validate", "nowhere", 1) + "\r\n{",
			wantCode: "HTTP/1.1 404 Not Found",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := start(t, Options{}, tc.limit)
			c := dialTLS(t, s)
			if _, err := io.WriteString(c, tc.sent); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c) // ends when the server closes the connection
			if err != nil {
				t.Fatalf("reading: %v", err)
			}
			if !strings.HasPrefix(string(got), tc.wantCode) || tc.wantCode == "" && strings.Contains(string(got), " 200 ") {
				t.Errorf("answer %q, want %q", got, tc.wantCode)
			}
		})
	}
	t.Run("nothing at all", func(t *testing.T) {
		s := start(t, Options{}, func(s *Server) { s.timeouts.Handshake = soon })
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection was left open")
		}
	})
}

// TestUnusedConnection checks that a connection is kept before its first request as long as between requests: API
// servers do not retry a first request that arrives on a closing connection.
func TestUnusedConnection(t *testing.T) {
	t.Parallel() // it waits
	const soon = 500 * time.Millisecond
	s := start(t, Options{}, func(s *Server) { s.timeouts.Header = soon })
	c := dialTLS(t, s)
	time.Sleep(2 * soon)
	sendReview(c)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("the first request on a connection that had waited was not answered: %v", err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status %s, want 200", response.Status)
	}
}

// TestSlowEvaluation checks that the limits to clients do not cut an evaluation short.
func TestSlowEvaluation(t *testing.T) {
	t.Parallel() // it waits
	const short = time.Second
	evaluator := evaluatorFunc(func(ctx context.Context, _ registration.GroupKey, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		select {
		case <-time.After(3 * short):
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	s := start(t, Options{Evaluator: evaluator}, func(s *Server) { s.timeouts.Header, s.handler.bodies.timeout = short, short })
	expectAllowed(t, s.client(t), s.url("/validate/group"))
}

// TestClientLeaves checks that an evaluation ends when the client closes the connection.
func TestClientLeaves(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan error, 1)
	evaluator := evaluatorFunc(func(ctx context.Context, _ registration.GroupKey, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		close(entered)
		select {
		case <-ctx.Done():
			ended <- ctx.Err()
		case <-time.After(waitTimeout):
			ended <- nil
		}
		return nil, ctx.Err()
	})
	s := start(t, Options{Evaluator: evaluator})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-entered; cancel() }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url("/validate/group?timeout=30s"), strings.NewReader(validReview()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	if response, err := s.client(t).Do(r); err == nil {
		response.Body.Close()
		t.Error("the request was answered")
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the evaluation ended with %v, want %v", err, context.Canceled)
	}
}

// TestConnectionLimit checks that requests on connections beyond the limit get 503, and others are answered.
func TestConnectionLimit(t *testing.T) {
	s := start(t, Options{MaxConnections: 2})
	clients := []*http.Client{s.client(t), s.client(t)}
	for _, client := range clients {
		expectAllowed(t, client, s.url("/validate/group"))
	}
	excess := post(t, s.client(t), s.url("/validate/group"), validReview())
	if excess.code != http.StatusServiceUnavailable || excess.header.Get("Retry-After") != "1" || !excess.close ||
		excess.body != "too many connections\n" {
		t.Errorf("answer %+v, want 503 with Retry-After 1 and a closed connection", excess)
	}
	for _, client := range clients {
		expectAllowed(t, client, s.url("/validate/group"))
	}
	clients[0].CloseIdleConnections()
	eventually(t, "a connection is let in when another has ended", func() bool {
		return post(t, s.client(t), s.url("/validate/group"), validReview()).code == http.StatusOK
	})
}

// TestHalfOpenConnections opens more connections than the limit and leaves them. Another client is answered.
func TestHalfOpenConnections(t *testing.T) {
	s := start(t, Options{MaxConnections: 8}, func(s *Server) { s.timeouts.Handshake = 200 * time.Millisecond })
	for range 8 + 2*connections.Spare {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	eventuallyAllowed(t, s)
}

// TestKeepAlive checks that connections are kept, closed when old or much used, and closed after a failure.
func TestKeepAlive(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Unix(1e9, 0))
	options := Options{Clock: clock, Random: func(int64) int64 { return 0 }}
	cases := map[string]struct {
		requests  int
		age       time.Duration
		body      string
		wantClose bool
	}{
		"1000th answer":    {requests: 1000, body: validReview(), wantClose: true},
		"young connection": {requests: 2, age: connections.MinAge - 1, body: validReview()},
		"old connection":   {requests: 2, age: connections.MinAge, body: validReview(), wantClose: true},
		"failure":          {requests: 1, body: "{", wantClose: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := start(t, options)
			client := s.client(t)
			for range tc.requests - 1 {
				if got := post(t, client, s.url("/validate/group"), validReview()); got.code != http.StatusOK || got.close {
					t.Fatalf("answer %+v, want 200 on a connection that stays open", got)
				}
			}
			clock.SetTime(clock.Now().Add(tc.age))
			if got := post(t, client, s.url("/validate/group"), tc.body); got.close != tc.wantClose {
				t.Errorf("closed: %t, want %t", got.close, tc.wantClose)
			}
		})
	}
	s := start(t, Options{})
	client := s.client(t)
	var accepted atomic.Int64
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		accepted.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	for range 20 {
		expectAllowed(t, client, s.url("/validate/group"))
	}
	if got := accepted.Load(); got != 1 {
		t.Errorf("20 requests took %d connections, want 1", got)
	}
}

func TestReady(t *testing.T) {
	idle, err := New(Options{Address: ":0", GetCertificate: newPair(t).get, Accepts: acceptsAll, Evaluator: allowAll()})
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.Ready(nil); err == nil || idle.NeedLeaderElection() {
		t.Errorf("not started: ready %v, needs leader election %t; want an error, false", err, idle.NeedLeaderElection())
	}
	s := start(t, Options{Drain: Drain{Min: time.Millisecond, Quiet: time.Millisecond, Max: 2 * waitTimeout}})
	expectAllowed(t, s.client(t), s.url("/validate/group")) // on a connection that stays open, so the drain does not end
	if err := s.Ready(nil); err != nil {
		t.Errorf("serving: %v", err)
	}
	s.stop()
	eventually(t, "the server drains", func() bool { return s.draining.Load() })
	if err := s.Ready(nil); err != nil {
		t.Errorf("draining: %v: want it ready, for where there is no other", err)
	}
	expectAllowed(t, s.client(t), s.url("/validate/group"))
}

func TestNotReadyInSecondHalfOfDrain(t *testing.T) {
	s := start(t, Options{Drain: Drain{Min: time.Millisecond, Quiet: time.Millisecond, Max: time.Second}})
	expectAllowed(t, s.client(t), s.url("/validate/group"))
	s.stop()
	eventually(t, "the server is not ready any more", func() bool { return s.Ready(nil) != nil })
}

func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, err := New(Options{Address: taken.Addr().String(), GetCertificate: newPair(t).get, Accepts: acceptsAll, Evaluator: allowAll()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "listening for admission reviews: ") {
		t.Errorf("error %v, want one about listening", err)
	}
	taken.Close()
	s, err = New(Options{Listener: taken, GetCertificate: newPair(t).get, Accepts: acceptsAll, Evaluator: allowAll()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "serving admission reviews: ") {
		t.Errorf("error %v, want one about serving", err)
	}
}

// TestDrainMax checks that a connection that stays open is closed at the end of the drain.
func TestDrainMax(t *testing.T) {
	s := start(t, Options{Drain: Drain{Min: time.Millisecond, Quiet: time.Millisecond, Max: 100 * time.Millisecond}})
	c := dialTLS(t, s)
	sendReview(c)
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatal(err)
	}
	s.stop()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(waitTimeout):
		t.Error("the server did not end")
	}
}

// TestNoFailedAdmissionWhileDraining replaces a replica under load, as behind a Service: callers learn late that it is
// gone. They keep their connections, and do not retry failed calls.
func TestNoFailedAdmissionWhileDraining(t *testing.T) {
	drain := Drain{Min: 300 * time.Millisecond, Quiet: 100 * time.Millisecond, Max: 4 * waitTimeout}
	shared := newPair(t)
	share := func(s *Server) { s.options.GetCertificate = shared.get }
	old, next := start(t, Options{Drain: drain}, share), start(t, Options{}, share)
	var endpoint atomic.Pointer[running]
	endpoint.Store(old)
	var answered [2]atomic.Int64
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, endpoint.Load().address)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var callers sync.WaitGroup
	for i, call := range []func() error{plainCaller(shared, dial), kubernetesCaller(t, shared, dial)} {
		for range 12 {
			callers.Go(func() {
				for ctx.Err() == nil {
					if err := call(); err != nil {
						t.Errorf("a call failed: %v", err)
						return
					}
					answered[i].Add(1)
				}
			})
		}
	}
	eventually(t, "both kinds of callers are answered", func() bool { return answered[0].Load() > 50 && answered[1].Load() > 50 })
	old.stop()
	time.Sleep(100 * time.Millisecond) // the lag of endpoints
	endpoint.Store(next)
	select {
	case err := <-old.ended:
		if err != nil {
			t.Errorf("the replaced server ended with %v", err)
		}
	case <-time.After(waitTimeout):
		t.Error("the replaced server did not end, although its callers had another one to go to")
	}
	before := answered[0].Load() + answered[1].Load()
	eventually(t, "callers go on", func() bool { return answered[0].Load()+answered[1].Load() > before+50 })
	cancel()
	callers.Wait()
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func plainCaller(p pair, dial dialer) func() error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: p.pool}, MaxIdleConnsPerHost: 64,
	}}
	body := []byte(validReview())
	return func() error {
		response, err := client.Post("https://checks.shop.svc/validate/group?timeout=30s", contentType, bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", response.Status)
		}
		return nil
	}
}

func kubernetesCaller(t *testing.T, p pair, dial dialer) func() error {
	client := kubernetesClient(t, p, dial)
	return func() error {
		return callV1(client, "u-1", new(admissionv1.AdmissionReview))
	}
}

// TestKubernetesClient calls with the client that API servers call with.
func TestKubernetesClient(t *testing.T) {
	evaluator := evaluatorFunc(func(_ context.Context, _ registration.GroupKey, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return &admissionv1.AdmissionResponse{Allowed: r.Operation == admissionv1.Create, Warnings: []string{r.Name}}, nil
	})
	s := start(t, Options{Evaluator: evaluator})
	client := kubernetesClient(t, s.pair, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.address)
	})
	v1 := new(admissionv1.AdmissionReview)
	if err := callV1(client, "u-1", v1); err != nil {
		t.Fatal(err)
	}
	if v1.Response == nil || v1.Response.UID != "u-1" || !v1.Response.Allowed || len(v1.Response.Warnings) != 1 ||
		v1.Response.Warnings[0] != "shop" {
		t.Errorf("v1: response %+v", v1.Response)
	}
	question := &admissionv1beta1.AdmissionReview{Request: &admissionv1beta1.AdmissionRequest{UID: "u-2", Operation: admissionv1beta1.Delete}}
	question.Request.OldObject.Raw = []byte(`{"apiVersion":"v1","kind":"Pod"}`)
	question.Request.Kind.Version, question.Request.Kind.Kind = "v1", "Pod"
	question.Request.Resource.Version, question.Request.Resource.Resource = "v1", "pods"
	v1beta1 := new(admissionv1beta1.AdmissionReview)
	if err := client.Post().Body(question).Do(t.Context()).Into(v1beta1); err != nil {
		t.Fatal(err)
	}
	if v1beta1.Response == nil || v1beta1.Response.UID != "u-2" || v1beta1.Response.Allowed ||
		v1beta1.APIVersion != "admission.k8s.io/v1beta1" {
		t.Errorf("v1beta1: %+v", v1beta1)
	}
}

// TestRetryAfterReachesKubernetesClient checks that the client retries a 503 with Retry-After, for every verb.
func TestRetryAfterReachesKubernetesClient(t *testing.T) {
	var calls atomic.Int64
	evaluator := evaluatorFunc(func(context.Context, registration.GroupKey, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if calls.Add(1) <= 3 {
			return nil, retryError(0)
		}
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
	s := start(t, Options{Evaluator: evaluator})
	client := kubernetesClient(t, s.pair, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.address)
	})
	got := new(admissionv1.AdmissionReview)
	if err := callV1(client, "u-1", got); err != nil || got.Response == nil || !got.Response.Allowed || calls.Load() != 4 {
		t.Errorf("error %v, response %+v, %d calls; want allowed with the fourth", err, got.Response, calls.Load())
	}
}
