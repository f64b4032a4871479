package webhooks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/queue"
	"github.com/ostiary/ostiary/internal/registration"
)

// holding returns an evaluator that blocks requests for the group "held" for a time.
func holding(d time.Duration) Evaluator {
	return evaluatorFunc(func(ctx context.Context, key registration.GroupKey, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if key.Name == "held" {
			time.Sleep(d)
		}
		if key.Name == "away" {
			queue.Yield(ctx, func() { time.Sleep(d) })
		}
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
}

// TestLimits blocks one request, and checks how and when another one is answered.
func TestLimits(t *testing.T) {
	large := validReview() + strings.Repeat(" ", smallBody)
	veryLarge := validReview() + strings.Repeat(" ", largeReview)
	one := Options{MaxEvaluations: 1, MaxInFlight: 9}
	memory := Options{MaxEvaluations: 9, MaxInFlight: 9, MaxBodyBytes: 40 << 10, MaxInFlightBytes: 40 << 10}
	type want struct {
		code       int
		message    string
		retryAfter string
		after      time.Duration
		shed       string
	}
	allowed := func(after time.Duration) want { return want{code: http.StatusOK, after: after} }
	cases := map[string]struct {
		options  Options
		held     time.Duration
		first    string // path of the one that is held
		heldBody string
		path     string
		body     string
		want     want
	}{
		"waits for a slot": {options: one, held: 2 * time.Second, path: "/validate/other?timeout=5s", want: allowed(2 * time.Second)},
		"waits half of its time": {options: one, held: 9 * time.Second, path: "/mutate/other?timeout=5s",
			want: want{503, "too many requests to answer this one in time\n", "1", 2500 * time.Millisecond, "wait"}},
		"has little time": {options: one, held: 9 * time.Second, path: "/validate/other?timeout=1s",
			want: want{503, "too many requests to answer this one in time\n", "0", 500 * time.Millisecond, "wait"}},
		"too many wait already": {options: Options{MaxEvaluations: 1, MaxInFlight: 1}, held: 9 * time.Second, path: "/validate/other?timeout=5s",
			want: want{503, "too many requests\n", "1", 0, "requests"}},
		"the first has yielded its slot": {
			options: one,
			held:    9 * time.Second,
			first:   "/validate/away?timeout=30s",
			path:    "/validate/other?timeout=5s",
			want:    allowed(0),
		},
		"a policy is reviewed": {
			options: Options{MaxEvaluations: 1, MaxInFlight: 1},
			held:    9 * time.Second,
			path:    reviewPath + "?timeout=5s",
			want:    allowed(0),
		},
		"a canary": {
			options: Options{MaxEvaluations: 1, MaxInFlight: 1},
			held:    9 * time.Second,
			path:    "/canary/validate?timeout=5s",
			want:    allowed(0),
		},
		"waits for memory": {
			options:  memory,
			held:     2 * time.Second,
			heldBody: large,
			path:     "/validate/other?timeout=5s",
			body:     large,
			want:     allowed(2 * time.Second),
		},
		"memory comes too late": {options: memory, held: 9 * time.Second, heldBody: large, path: "/validate/other?timeout=5s", body: large,
			want: want{503, "too many large bodies\n", "1", 2500 * time.Millisecond, "memory"}},
		"small beside large": {
			options:  memory,
			held:     9 * time.Second,
			heldBody: large,
			path:     "/validate/other?timeout=5s",
			want:     allowed(0),
		},
		"usual beside what takes long": {
			options:  one,
			held:     9 * time.Second,
			heldBody: veryLarge,
			path:     "/validate/other?timeout=5s",
			want:     allowed(0),
		},
		"what takes long beside another": {
			options:  Options{MaxEvaluations: 15},
			held:     2 * time.Second,
			heldBody: veryLarge,
			path:     "/validate/other?timeout=5s",
			body:     veryLarge,
			want:     allowed(2 * time.Second),
		},
		"what takes long, beside one of two": {
			options:  Options{MaxEvaluations: 16},
			held:     2 * time.Second,
			heldBody: veryLarge,
			path:     "/validate/other?timeout=5s",
			body:     veryLarge,
			want:     allowed(0),
		},
		"a large canary": {options: memory, path: "/canary/validate", body: large,
			want: want{code: 413, message: "the body has more than 32768 bytes\n"}},
		"a large policy": {path: reviewPath, body: strings.Repeat(" ", maxReviewedBody+1),
			want: want{code: 413, message: "the body has more than 10485760 bytes\n"}},
		"the largest policy": {path: reviewPath, body: validReview() + strings.Repeat(" ", maxReviewedBody-len(validReview())), want: allowed(0)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				tc.options.Evaluator, tc.options.Registerer = holding(tc.held), registry
				h := handlerOf(t, tc.options)
				var held sync.WaitGroup
				if tc.held > 0 {
					held.Go(func() {
						if w := serve(h, orDefault(tc.first, "/validate/held?timeout=30s"), orDefault(tc.heldBody, validReview())); w.Code != http.StatusOK {
							t.Errorf("held request: code %d: %s", w.Code, w.Body)
						}
					})
					synctest.Wait()
				}
				began := time.Now()
				w := serve(h, tc.path, orDefault(tc.body, validReview()))
				got := want{w.Code, w.Body.String(), w.Header().Get("Retry-After"), time.Since(began), tc.want.shed}
				if got.code == http.StatusOK {
					got.message = ""
				}
				if got != tc.want {
					t.Errorf("answer %+v, want %+v", got, tc.want)
				}
				held.Wait()
				checkIdle(t, gather(t, registry), tc.want.shed)
			})
		})
	}
}

// checkIdle checks that nothing is held, and that one request was shed for the reason, or none.
func checkIdle(t *testing.T, got map[string]float64, reason string) {
	t.Helper()
	for _, series := range []string{
		"ostiary_webhook_evaluations_in_flight", "ostiary_webhook_queued_requests", "ostiary_webhook_large_body_bytes",
	} {
		if n, ok := got[series]; n != 0 || !ok {
			t.Errorf("%s is %v in the end, want 0", series, n)
		}
	}
	for _, r := range shedReasons() {
		want := 0.0
		if r == reason {
			want = 1
		}
		if n := got["ostiary_webhook_shed_total reason="+r]; n != want {
			t.Errorf("%v requests shed for %q, want %v", n, r, want)
		}
	}
}

// TestGaugesOfLoad checks the gauges while requests are evaluated and wait.
func TestGaugesOfLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		h := handlerOf(t, Options{Evaluator: holding(time.Second), Registerer: registry, MaxEvaluations: 2})
		large := validReview() + strings.Repeat(" ", smallBody)
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() { serve(h, "/validate/held?timeout=30s", large) })
		}
		synctest.Wait()
		got := gather(t, registry)
		for series, want := range map[string]float64{
			"ostiary_webhook_evaluations_in_flight": 2,
			"ostiary_webhook_queued_requests":       3,
			"ostiary_webhook_large_body_bytes":      5 * float64(len(large)),
		} {
			if got[series] != want {
				t.Errorf("%s is %v, want %v", series, got[series], want)
			}
		}
		callers.Wait()
		checkIdle(t, gather(t, registry), "")
	})
}

// TestOverloadIsBounded has many more callers than can be answered in time. Each gets an answer within its timeout, and
// the evaluator stays fully used.
func TestOverloadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, evaluations, takes, timeout = 400, 2, 100 * time.Millisecond, 5 * time.Second
		h := handlerOf(t, Options{Evaluator: holding(takes), MaxEvaluations: evaluations, MaxInFlight: 200, Log: logr.Discard()})
		serve(h, "/validate/held", validReview()) // so that it is known how long one takes
		var group sync.WaitGroup
		var mu sync.Mutex
		codes := map[int]int{}
		for range callers {
			group.Go(func() {
				began := time.Now()
				w := serve(h, "/validate/held?timeout="+timeout.String(), validReview())
				if took := time.Since(began); took > timeout {
					t.Errorf("answered %d after %s", w.Code, took)
				}
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
			})
		}
		group.Wait()
		least := int(timeout/2/takes) * evaluations
		if codes[http.StatusOK] < least || codes[http.StatusOK]+codes[http.StatusServiceUnavailable] != callers {
			t.Errorf("answers %v, want %d times 503, but 200 at least %d times", codes, callers, least)
		}
	})
}

// TestBodyTimeCountsTowardsTimeout checks that reading a slow body does not extend the timeout.
func TestBodyTimeCountsTowardsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evaluator := evaluatorFunc(func(ctx context.Context, _ registration.GroupKey, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		h := handlerOf(t, Options{Evaluator: evaluator})
		began := time.Now()
		r := httptest.NewRequest(http.MethodPost, "/validate/group?timeout=5s",
			&slowReader{Reader: strings.NewReader(validReview()), pause: 3 * time.Second})
		r.ContentLength = int64(len(validReview()))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if took := time.Since(began); took != 5*time.Second || w.Code != http.StatusGatewayTimeout {
			t.Errorf("answered %d after %s, want 504 after 5s", w.Code, took)
		}
	})
}

// slowReader waits once before it reads.
type slowReader struct {
	*strings.Reader
	pause time.Duration
}

func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	s.pause = 0
	return s.Reader.Read(p)
}
