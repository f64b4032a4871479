package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// controllerRuntime is the handler that most webhooks are built with. It allows everything.
func controllerRuntime() http.Handler {
	log.SetLogger(logr.Discard())
	return &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})}
}

func ostiary(b *testing.B) http.Handler {
	b.Helper()
	s, err := New(Options{Address: ":0", GetCertificate: newPair(b).get, Accepts: acceptsAll, Evaluator: allowAll(), Log: logr.Discard()})
	if err != nil {
		b.Fatal(err)
	}
	return s.Handler()
}

// BenchmarkDecodeReview reads the envelope of a review of a pod, whose object stays as it is.
func BenchmarkDecodeReview(b *testing.B) {
	body := readFile(b, "testdata/review.json")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := parseEnvelope(body).decode(body, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandlerAllow answers a review without a network, beside controller-runtime.
func BenchmarkHandlerAllow(b *testing.B) {
	body := readFile(b, "testdata/review.json")
	for _, bench := range []struct {
		name    string
		handler http.Handler
	}{{"ostiary", ostiary(b)}, {"controller-runtime", controllerRuntime()}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/validate/group?timeout=5s", bytes.NewReader(body))
				r.Header.Set("Content-Type", contentType)
				w := httptest.NewRecorder()
				bench.handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatalf("code %d: %s", w.Code, w.Body)
				}
			}
		})
	}
}

// BenchmarkTLSAllow answers reviews over TLS on kept connections, client included, beside controller-runtime.
func BenchmarkTLSAllow(b *testing.B) {
	body := readFile(b, "testdata/review.json")
	ours := start(b, Options{})
	theirs := httptest.NewUnstartedServer(controllerRuntime())
	theirs.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ours.certificate}}
	theirs.StartTLS()
	b.Cleanup(theirs.Close)
	for _, bench := range []struct{ name, url string }{
		{"ostiary", ours.url("/validate/group?timeout=5s")},
		{"controller-runtime", theirs.URL + "/validate/group?timeout=5s"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			client := ours.client(b)
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					response, err := client.Post(bench.url, contentType, bytes.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
					if response.StatusCode != http.StatusOK {
						b.Errorf("code %d", response.StatusCode)
						return
					}
				}
			})
		})
	}
}
