package bench_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/log"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/test/bench"
	"github.com/ostiary/ostiary/webhooks"
)

// audited follows the names of sets whose violations are audited and not denied.
const audited = ", Audit"

// loaded are the sets that requests are measured with.
func loaded() []string {
	plain := []string{bench.A, bench.B, bench.C, bench.D, bench.R, bench.R2, bench.V}
	return append(plain, bench.R+audited, bench.R2+audited, bench.V+audited)
}

func policiesOf(tb testing.TB, set string) []*v1alpha1.WebhookPolicy {
	tb.Helper()
	if name, ok := strings.CutSuffix(set, audited); ok {
		pair, err := bench.AuditPairOf(name)
		if err != nil {
			tb.Fatal(err)
		}
		return pair.Ostiary
	}
	policies, err := bench.Policies(set)
	if err != nil {
		tb.Fatal(err)
	}
	return policies
}

// service answers for one set of policies as the manager does: with the groups
// that are registered, and with metrics.
type service struct {
	handler http.Handler
	server  *webhooks.Server
	paths   []string // that an API server calls for a pod
}

type evaluator struct {
	webhooks.Evaluator // no policies are reviewed

	groups map[registration.GroupKey]*policy.Group
	host   policy.Environment
}

func (e evaluator) Evaluate(ctx context.Context, group registration.GroupKey,
	request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return e.groups[group].Validate(ctx, request, e.host)
}

func newService(tb testing.TB, set string, change ...func(*webhooks.Options)) *service {
	tb.Helper()
	policies := policiesOf(tb, set)
	compiler := policy.NewCompiler()
	compiled := map[string]*policy.Compiled{}
	var names []string
	for _, p := range policies {
		c, errs := compiler.Compile(p)
		if len(errs) > 0 {
			tb.Fatal(errs.ToAggregate())
		}
		compiled[p.Name] = c
		names = append(names, p.Name)
	}
	plan := registration.Build(registration.Input{
		Policies: policies, Endpoint: registration.Endpoint{URL: "https://127.0.0.1"}, CABundle: []byte("bundle"),
	})
	s := &service{}
	groups := map[registration.GroupKey]*policy.Group{}
	for _, g := range plan.Groups {
		var members []*policy.Compiled
		for _, name := range g.Members {
			members = append(members, compiled[name])
		}
		groups[g.Key()] = policy.NewGroup(members)
		hook := registration.Webhooks(g.Configuration)[0]
		called, err := bench.Called(tb.Context(), hook.Rules, hook.MatchConditions)
		if err != nil {
			tb.Fatal(err)
		}
		if called {
			s.paths = append(s.paths, g.Path+"?timeout=5s")
		}
	}
	registry := prometheus.NewRegistry()
	counts := metrics.NewPolicies(registry)
	counts.Keep(names, 0)
	host := surroundingsOf(tb, strings.TrimSuffix(set, audited)).host()
	host.Observe = counts.Observe
	o := webhooks.Options{
		Address:        "127.0.0.1:0",
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("no certificate") },
		Accepts:        func(string) bool { return true }, // paths have no capability here
		Evaluator:      evaluator{groups: groups, host: host},
		Registerer:     registry,
		Log:            logr.Discard(),
	}
	for _, f := range change {
		f(&o)
	}
	server, err := webhooks.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.server = server
	s.handler = s.server.Handler()
	return s
}

// TestOneCall fails if a Pod costs more than one call, also with the three lists of versions of R2.
func TestOneCall(t *testing.T) {
	for _, set := range []string{bench.B, bench.R, bench.R2} {
		if s := newService(t, set); len(s.paths) != 1 {
			t.Errorf("set %s: a Pod costs calls of %q, want one", set, s.paths)
		}
	}
}

// allows reports whether the policies of a set allow a pod.
func allows(set, pod string) bool {
	return pod == bench.Good || set == bench.Probes || strings.HasSuffix(set, audited)
}

// allowing is the webhook of controller-runtime that allows everything.
func allowing() http.Handler {
	log.SetLogger(logr.Discard())
	return &crwebhook.Webhook{Handler: crwebhook.HandlerFunc(func(context.Context, crwebhook.Request) crwebhook.Response {
		return crwebhook.Allowed("")
	})}
}

func mustReview(tb testing.TB, pod string) []byte {
	tb.Helper()
	body, err := bench.Review(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// answer has the handler answer a review, without a network.
func answer(handler http.Handler, path string, body []byte) *http.Response {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Result()
}

func check(response *http.Response, wantAllowed bool) error {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s: %s", response.Status, body)
	}
	if review.Response == nil || review.Response.Allowed != wantAllowed {
		return fmt.Errorf("answered %s, want allowed: %t", body, wantAllowed)
	}
	return nil
}

// BenchmarkCompile compiles a whole set into an empty compiler, as after a start.
func BenchmarkCompile(b *testing.B) {
	for _, set := range append(loaded(), bench.Probes) {
		policies := policiesOf(b, set)
		b.Run("set="+set, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compiler := policy.NewCompiler()
				for _, p := range policies {
					if _, errs := compiler.Compile(p); len(errs) > 0 {
						b.Fatal(errs.ToAggregate())
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(policies)), "µs/policy")
		})
	}
}

// BenchmarkReview decodes a review, evaluates it and encodes the answer. The
// time includes making the request and the recorder, for both kinds of webhook.
func BenchmarkReview(b *testing.B) {
	good := mustReview(b, bench.Good)
	b.Run("controller-runtime", func(b *testing.B) { measure(b, allowing(), []string{"/"}, good, true) })
	for _, set := range loaded() {
		s := newService(b, set)
		for _, pod := range []string{bench.Good, bench.Bad} {
			body := mustReview(b, pod)
			b.Run("set="+set+"/pod="+pod, func(b *testing.B) { measure(b, s.handler, s.paths, body, allows(set, pod)) })
		}
	}
}

func measure(b *testing.B, handler http.Handler, paths []string, body []byte, want bool) {
	for _, path := range paths {
		if err := check(answer(handler, path, body), want); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		for _, path := range paths {
			if response := answer(handler, path, body); response.StatusCode != http.StatusOK {
				b.Fatal(response.Status)
			}
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processorTime is that of this process, which depends less on what else runs on the
// machine than the time on the clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkTLS asks over TLS on 16 kept connections. Time and allocations
// include the client's.
func BenchmarkTLS(b *testing.B) {
	pair, pool := certificate(b)
	good := mustReview(b, bench.Good)
	noop := httptest.NewUnstartedServer(allowing())
	noop.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	noop.StartTLS()
	defer noop.Close()
	b.Run("controller-runtime", func(b *testing.B) { call(b, pool, []string{noop.URL}, good, true) })
	for _, set := range loaded() {
		urls := serve(b, set, pair)
		for _, pod := range []string{bench.Good, bench.Bad} {
			body := mustReview(b, pod)
			b.Run("set="+set+"/pod="+pod, func(b *testing.B) { call(b, pool, urls, body, allows(set, pod)) })
		}
	}
}

// converters know the built-in kinds, as read from an API server.
type converters struct{ managedfields.TypeConverter }

func (c converters) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter { return c }

// BenchmarkMutate has policies that each add a label mutate a pod in one call.
func BenchmarkMutate(b *testing.B) {
	host := policy.Environment{
		TypeConverters: converters{applyconfigurations.NewTypeConverter(scheme.Scheme)},
		Objects:        admission.NewObjectInterfacesFromScheme(scheme.Scheme),
		Now:            time.Now,
	}
	for _, patch := range []admissionregistrationv1.PatchType{
		admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch,
	} {
		for _, count := range []int{1, 5, 20} {
			b.Run(fmt.Sprintf("patch=%s/policies=%d", patch, count), func(b *testing.B) { mutate(b, bench.MutationsPair(count, patch), host) })
		}
	}
}

func mutate(b *testing.B, pair *bench.Pair, host policy.Environment) {
	compiler := policy.NewCompiler()
	var members []*policy.Compiled
	for _, p := range pair.Ostiary {
		c, errs := compiler.Compile(p)
		if len(errs) > 0 {
			b.Fatal(errs.ToAggregate())
		}
		members = append(members, c)
	}
	request, err := bench.Request(bench.Good)
	if err != nil {
		b.Fatal(err)
	}
	group := policy.NewGroup(members)
	b.ReportAllocs()
	for b.Loop() {
		response, err := group.Mutate(b.Context(), request, host)
		if err != nil || !response.Allowed || bytes.Count(response.Patch, []byte("added-")) != len(pair.Marks) {
			b.Fatalf("answered %v, patch %s: %v", response, response.Patch, err)
		}
	}
}

func certificate(b *testing.B) (tls.Certificate, *x509.CertPool) {
	b.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pair, pool
}

// serve runs the real server for a set, and returns what to call for a pod.
func serve(b *testing.B, set string, pair tls.Certificate) []string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := newService(b, set, func(o *webhooks.Options) {
		o.Listener = listener
		o.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		o.Drain = webhooks.Drain{Min: time.Millisecond, Quiet: time.Millisecond, Max: time.Second}
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Start(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	var urls []string
	for _, path := range s.paths {
		urls = append(urls, "https://"+listener.Addr().String()+path)
	}
	return urls
}

func call(b *testing.B, pool *x509.CertPool, urls []string, body []byte, want bool) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	b.ReportAllocs()
	b.SetParallelism(8) // for each processor; 16 on two
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			for _, url := range urls {
				response, err := client.Post(url, "application/json", bytes.NewReader(body))
				if err == nil {
					err = check(response, want)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		}
	})
}
