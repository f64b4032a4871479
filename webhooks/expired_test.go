package webhooks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/registration"
)

// untouchedBody is a body that must not be read.
type untouchedBody struct{ read atomic.Bool }

func (u *untouchedBody) Read([]byte) (int, error) {
	u.read.Store(true)
	return 0, errors.New("read")
}

func (u *untouchedBody) Close() error { return nil }

func newExpiring(t *testing.T, expired *atomic.Bool, e Evaluator) http.Handler {
	t.Helper()
	s, err := New(Options{Address: ":0", Accepts: acceptsAll, GetCertificate: newPair(t).get, Evaluator: e, Expired: expired.Load})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

func wantLeaseExpired(t *testing.T, got *http.Response) {
	t.Helper()
	body, _ := io.ReadAll(got.Body)
	if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" || got.Header.Get("Connection") != "close" ||
		string(body) != "the replica's Lease has expired, so its policies may be old\n" {
		t.Errorf("got %d %v %q", got.StatusCode, got.Header, body)
	}
}

// TestExpiredLease checks that a replica whose Lease has expired reads and answers no review.
func TestExpiredLease(t *testing.T) {
	for _, path := range []string{"/validate/group", "/mutate/group", reviewPath, registration.CanaryPath + "validate"} {
		t.Run(path, func(t *testing.T) {
			var expired atomic.Bool
			expired.Store(true)
			h := newExpiring(t, &expired, allowAll())
			body := &untouchedBody{}
			r := httptest.NewRequest(http.MethodPost, path, body)
			r.Header.Set("Content-Type", contentType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			wantLeaseExpired(t, w.Result())
			if body.read.Load() {
				t.Error("the body was read")
			}

			expired.Store(false)
			r = httptest.NewRequest(http.MethodPost, path, strings.NewReader(validReview()))
			r.Header.Set("Content-Type", contentType)
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("got %d %s after the renewal", w.Code, w.Body)
			}
		})
	}
}

// TestLeaseExpiresDuringEvaluation checks that the result of an evaluation is not sent if the Lease expired during it.
func TestLeaseExpiresDuringEvaluation(t *testing.T) {
	for name, fails := range map[string]error{"an answer": nil, "an error": errors.New("secret of the evaluator")} {
		t.Run(name, func(t *testing.T) {
			var expired atomic.Bool
			h := newExpiring(t, &expired, evaluatorFunc(func(context.Context, registration.GroupKey, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				expired.Store(true)
				return &admissionv1.AdmissionResponse{Allowed: true}, fails
			}))
			r := httptest.NewRequest(http.MethodPost, "/validate/group", strings.NewReader(validReview()))
			r.Header.Set("Content-Type", contentType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			wantLeaseExpired(t, w.Result())
		})
	}
}
