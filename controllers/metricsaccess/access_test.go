package metricsaccess

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"
)

// apiServer answers reviews: a token is the name of its user. It counts TokenReviews.
type apiServer struct {
	readers map[string]bool // users who may get /metrics; false: authenticated only
	down    atomic.Bool
	reviews atomic.Int64
	last    authorizationv1.SubjectAccessReviewSpec
}

func (s *apiServer) reviewToken(action clienttesting.Action) (bool, runtime.Object, error) {
	s.reviews.Add(1)
	if s.down.Load() {
		return true, nil, errors.New("dial tcp 192.0.2.1:443: connection refused")
	}
	review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
	if _, ok := s.readers[review.Spec.Token]; !ok {
		review.Status.Error = "invalid bearer token"
		return true, review, nil
	}
	review.Status.Authenticated = true
	review.Status.User = authenticationv1.UserInfo{
		Username: review.Spec.Token, UID: "1", Groups: []string{"system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"node": {"n1"}},
	}
	return true, review, nil
}

func (s *apiServer) reviewAccess(action clienttesting.Action) (bool, runtime.Object, error) {
	review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
	s.last = review.Spec
	review.Status.Allowed = s.readers[review.Spec.User]
	return true, review, nil
}

// access returns an Access that asks the server, and its clock and log.
func (s *apiServer) access(t *testing.T) (*Access, *testclock.FakePassiveClock, *strings.Builder) {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", s.reviewToken)
	client.PrependReactor("create", "subjectaccessreviews", s.reviewAccess)
	clock, lines := testclock.NewFakePassiveClock(time.Unix(1e9, 0)), &strings.Builder{}
	log := funcr.New(func(_, line string) { fmt.Fprintln(lines, line) }, funcr.Options{})
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
	return New(Options{Client: client, Next: next, Clock: clock, Log: log}), clock, lines
}

func get(a *Access, from, token string) *httptest.ResponseRecorder {
	return request(a, http.MethodGet, from, "Bearer "+token)
}

func request(a *Access, method, from, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, Path, http.NoBody)
	r.RemoteAddr = from + ":1"
	r.Header.Set("Authorization", authorization)
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

const scraper, stranger = "192.0.2.1", "192.0.2.2"

func TestAccess(t *testing.T) {
	for name, tc := range map[string]struct {
		method, authorization string
		down                  bool
		wantCode              int
		wantText              string
		wantHeader            http.Header
		wantReviews           int64
	}{
		"a reader":                 {authorization: "Bearer reader", wantCode: 200, wantText: "metrics", wantReviews: 1},
		"the scheme in lower case": {authorization: "bearer reader", wantCode: 200, wantText: "metrics", wantReviews: 1},
		"another user": {
			authorization: "Bearer other", wantCode: 403, wantReviews: 1,
			wantText: `the user "other" may not get the URL /metrics: bind the ClusterRole ostiary-metrics-reader` + "\n",
		},
		"an unknown token": {
			authorization: "Bearer nonsense", wantCode: 401, wantText: "the API server does not accept the token\n", wantReviews: 1,
			wantHeader: http.Header{"Www-Authenticate": {"Bearer"}},
		},
		"no token": {
			authorization: "", wantCode: 401, wantText: "present a bearer token of a user who may get the URL /metrics\n",
			wantHeader: http.Header{"Www-Authenticate": {"Bearer"}},
		},
		"an empty token": {
			authorization: "Bearer ",
			wantCode:      401,
			wantText:      "present a bearer token of a user who may get the URL /metrics\n",
			wantHeader:    http.Header{"Www-Authenticate": {"Bearer"}},
		},
		"a password": {
			authorization: "Basic cmVhZGVyOng=",
			wantCode:      401,
			wantText:      "present a bearer token of a user who may get the URL /metrics\n",
			wantHeader:    http.Header{"Www-Authenticate": {"Bearer"}},
		},
		"another method": {
			method:        http.MethodPost,
			authorization: "Bearer reader",
			wantCode:      405,
			wantText:      "use GET\n",
			wantHeader:    http.Header{"Allow": {"GET"}},
		},
		"no API server": {
			authorization: "Bearer reader", down: true, wantCode: 503,
			wantText: "the API server did not review the token: try again\n", wantReviews: 1,
			wantHeader: http.Header{"Retry-After": {"1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{readers: map[string]bool{"reader": true, "other": false}}
			server.down.Store(tc.down)
			a, _, _ := server.access(t)
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			w := request(a, tc.method, scraper, tc.authorization)
			if w.Code != tc.wantCode || w.Body.String() != tc.wantText || server.reviews.Load() != tc.wantReviews {
				t.Errorf("code %d, text %q after %d TokenReviews, want %d, %q after %d", w.Code, w.Body, server.reviews.Load(),
					tc.wantCode, tc.wantText, tc.wantReviews)
			}
			got := w.Header()
			for _, other := range []string{"Content-Type", "X-Content-Type-Options"} {
				got.Del(other)
			}
			if tc.wantHeader == nil {
				tc.wantHeader = http.Header{}
			}
			if diff := cmp.Diff(tc.wantHeader, got); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAccessReview checks what the API server is asked for a user.
func TestAccessReview(t *testing.T) {
	server := &apiServer{readers: map[string]bool{"reader": true}}
	a, _, _ := server.access(t)
	get(a, scraper, "reader")
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "reader", UID: "1", Groups: []string{"system:authenticated"},
		Extra:                 map[string]authorizationv1.ExtraValue{"node": {"n1"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}
	if diff := cmp.Diff(want, server.last); diff != "" {
		t.Errorf("SubjectAccessReview (-want +got):\n%s", diff)
	}
}

// TestResultsAreReused checks how long the result for a token is used.
func TestResultsAreReused(t *testing.T) {
	for name, tc := range map[string]struct {
		token       string
		later       time.Duration
		wantReviews int64
	}{
		"accepted":           {"reader", time.Minute - 1, 1},
		"accepted, later":    {"reader", time.Minute + 1, 2},
		"without permission": {"other", 10*time.Second - 1, 1},
		"rejected":           {"nonsense", 10*time.Second - 1, 1},
		"rejected, later":    {"nonsense", 10*time.Second + 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{readers: map[string]bool{"reader": true, "other": false}}
			a, clock, _ := server.access(t)
			before := get(a, scraper, tc.token)
			clock.SetTime(clock.Now().Add(tc.later))
			after := get(a, scraper, tc.token)
			if got := server.reviews.Load(); got != tc.wantReviews || after.Code != before.Code || after.Body.String() != before.Body.String() {
				t.Errorf("%d TokenReviews, want %d; answers %d %q and %d %q, want the same", got, tc.wantReviews, before.Code,
					before.Body, after.Code, after.Body)
			}
		})
	}
}

// TestTokenFlood sends 5,000 random tokens: they cause few TokenReviews, and scrapers are answered meanwhile.
func TestTokenFlood(t *testing.T) {
	server := &apiServer{readers: map[string]bool{"reader": true, "new": true}}
	a, clock, lines := server.access(t)
	if w := get(a, scraper, "reader"); w.Code != http.StatusOK {
		t.Fatalf("before the flood: %d %s", w.Code, w.Body)
	}
	flood := func(from func(int) string) (reviews int64) {
		before := server.reviews.Load()
		for i := range 5000 {
			w := get(a, from(i), fmt.Sprintf("secret-%d", i))
			if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q, want 1", w.Header().Get("Retry-After"))
			}
			if w.Code != http.StatusTooManyRequests && w.Code != http.StatusUnauthorized {
				t.Fatalf("token %d: %d %s, want 401 or 429", i, w.Code, w.Body)
			}
		}
		return server.reviews.Load() - before
	}
	if got := flood(func(int) string { return stranger }); got > sourceBurst {
		t.Errorf("5,000 tokens of one client caused %d TokenReviews, want at most %d", got, sourceBurst)
	}
	other := "192.0.2.3"
	for i := 4; a.sourceOf(other) == a.sourceOf(stranger); i++ { // a neighbour with the same limit would have to wait
		other = fmt.Sprintf("192.0.2.%d", i)
	}
	if w := get(a, other, "new"); w.Code != http.StatusOK {
		t.Errorf("a new scraper beside the flood of another client: %d %s", w.Code, w.Body)
	}
	clock.SetTime(clock.Now().Add(acceptedFor + time.Second)) // the result for the reader has expired
	everywhere := func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/256, i%256) }
	if got, most := flood(everywhere), int64(sources*sourceBurst); got > most {
		t.Errorf("5,000 tokens of as many clients caused %d TokenReviews, want at most %d", got, most)
	}
	if w := get(a, scraper, "reader"); w.Code != http.StatusOK {
		t.Errorf("a scraper that is known, when its result has expired: %d %s", w.Code, w.Body)
	}
	if n := strings.Count(lines.String(), "\n"); n == 0 || n > 10 || strings.Contains(lines.String(), "secret-") {
		t.Errorf("%d log lines, want a few without tokens:\n%s", n, lines)
	}
}

// TestRevokedTokenIsNotKnown checks that a token that is rejected is not preferred any more.
func TestRevokedTokenIsNotKnown(t *testing.T) {
	server := &apiServer{readers: map[string]bool{"reader": true}}
	a, clock, _ := server.access(t)
	get(a, scraper, "reader")
	delete(server.readers, "reader")
	clock.SetTime(clock.Now().Add(acceptedFor + time.Second))
	if w := get(a, scraper, "reader"); w.Code != http.StatusUnauthorized {
		t.Errorf("revoked: %d, want 401", w.Code)
	}
	if got := len(a.known.Keys()); got != 0 {
		t.Errorf("%d known tokens, want none", got)
	}
}

// TestResultsAreBounded checks that no number of tokens fills memory, and that rejected tokens displace no accepted one.
func TestResultsAreBounded(t *testing.T) {
	server := &apiServer{readers: map[string]bool{"reader": true}}
	a, clock, _ := server.access(t)
	get(a, scraper, "reader")
	for i := range 2 * maxRejected {
		clock.SetTime(clock.Now().Add(time.Millisecond))
		a.record(a.digest(fmt.Sprint(i)), &refusal{code: http.StatusUnauthorized})
	}
	if got := len(a.rejected.Keys()); got > maxRejected {
		t.Errorf("%d rejected tokens are kept, want at most %d", got, maxRejected)
	}
	if _, ok := a.accepted.Get(a.digest("reader")); !ok {
		t.Error("the accepted token was displaced")
	}
	for i := range 2 * maxAccepted {
		a.record(a.digest(fmt.Sprint("reader-", i)), nil)
	}
	if accepted, known := len(a.accepted.Keys()), len(a.known.Keys()); accepted > maxAccepted || known > maxAccepted {
		t.Errorf("%d accepted and %d known tokens are kept, want at most %d", accepted, known, maxAccepted)
	}
}

// TestErrorHidesTheAPIServer checks that clients do not see the errors of reviews, which contain addresses.
func TestErrorHidesTheAPIServer(t *testing.T) {
	server := &apiServer{}
	server.down.Store(true)
	a, _, lines := server.access(t)
	w := get(a, stranger, "x")
	if strings.Contains(w.Body.String(), "192.0.2.1") || !strings.Contains(lines.String(), "192.0.2.1:443: connection refused") {
		t.Errorf("answer %q, log %q: want the address in the log only", w.Body, lines)
	}
}
