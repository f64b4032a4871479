package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/queue"
	"github.com/ostiary/ostiary/internal/registration"
)

// reviewBy returns a review for a namespace, which can be empty, by a user.
func reviewBy(namespace, user string) string {
	return reviewOf(uidMember, kindMember, resourceMember, operationMember, objectMember,
		fmt.Sprintf(`"namespace": %q`, namespace), fmt.Sprintf(`"userInfo": {"groups": ["g"], "username": %q}`, user))
}

func TestFlowOfReview(t *testing.T) {
	const (
		namespaces = `"resource": {"group": "", "version": "v1", "resource": "namespaces"}`
		user       = `"userInfo": {"extra": {"username": ["no"]}, "username": "jane", "uid": "u"}`
	)
	tests := map[string]struct {
		body string
		want queue.Flow
	}{
		"namespaced":          {body: reviewBy("shop", "jane"), want: queue.Flow{Namespace: "shop"}},
		"cluster-scoped":      {body: reviewBy("", "jane"), want: queue.Flow{User: "jane"}},
		"without a namespace": {body: reviewOf(user, resourceMember), want: queue.Flow{User: "jane"}},
		"a Namespace": {
			body: reviewOf(user, namespaces, `"name": "shop"`, `"namespace": "shop"`),
			want: queue.Flow{User: "jane"},
		},
		"another object named so": {
			body: reviewOf(user, resourceMember, `"name": "shop"`, `"namespace": "shop"`),
			want: queue.Flow{Namespace: "shop"},
		},
		"namespaces of another group": {
			body: reviewOf(user, `"resource": {"group": "a.io", "resource": "namespaces"}`, `"name": "shop"`,
				`"namespace": "shop"`),
			want: queue.Flow{Namespace: "shop"},
		},
		"escaped": {
			body: reviewOf(user, `"namespace": "sh\u006fp"`),
			want: queue.Flow{Namespace: "shop"},
		},
		"a quoted user":               {body: reviewOf(`"userInfo": {"username": "a\"b"}`), want: queue.Flow{User: `a"b`}},
		"a user without a name":       {body: reviewOf(`"userInfo": {}`)},
		"a user that is no object":    {body: reviewOf(`"userInfo": ["username", "jane"]`)},
		"a namespace that is no text": {body: reviewOf(user, `"namespace": {"a": "b"}`), want: queue.Flow{User: "jane"}},
		"a name that is too long":     {body: reviewOf(`"userInfo": {"username": "` + strings.Repeat("a", maxLong+1) + `"}`)},
		"an invalid escape":           {body: reviewOf(`"userInfo": {"username": "\x"}`)},
		"a namespace beside the request": {
			body: `{"namespace": "shop", "request": {"userInfo": {"username": "jane"}}}`,
			want: queue.Flow{User: "jane"},
		},
		"a namespace in the object":         {body: reviewOf(user, `"object": {"namespace": "shop"}`), want: queue.Flow{User: "jane"}},
		"no review":                         {body: "[]"},
		"an unfinished review":              {body: `{"request": {"namespace": "shop`},
		"an empty body":                     {},
		"a review that ends in a namespace": {body: `{"request": {"namespace": "shop"`, want: queue.Flow{Namespace: "shop"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			body := []byte(tc.body)
			if got := parseEnvelope(body).flow(body); got != tc.want {
				t.Errorf("flow %+v, want %+v", got, tc.want)
			}
		})
	}
}

// ordered is an evaluator that records the namespaces, or the users, of requests in the order in which they are answered.
// Requests of a greedy flow take 100 steps of 10 ms, others one of 1 ms.
type ordered struct {
	mu       sync.Mutex
	answered []string
}

func (o *ordered) Evaluate(ctx context.Context, _ registration.GroupKey,
	r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	flow := r.Namespace + r.UserInfo.Username
	steps, each := 1, time.Millisecond
	if strings.HasPrefix(flow, "greedy") {
		steps, each = 100, 10*time.Millisecond
	}
	for range steps {
		time.Sleep(each)
		queue.Pause(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = append(o.answered, flow)
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

func (o *ordered) Review(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return o.Evaluate(ctx, registration.GroupKey{}, r)
}

// TestGreedyNamespaceDoesNotDelayOthers has 64 costly requests of one namespace or user, and then requests of others,
// which are answered first.
func TestGreedyNamespaceDoesNotDelayOthers(t *testing.T) {
	const greedy, others = 64, 15
	tests := map[string]struct {
		options  Options
		path     string
		greedyBy func(i int) string
		otherBy  func(i int) string
		padding  int
	}{
		"namespaces": {
			options:  Options{MaxEvaluations: 8},
			greedyBy: func(i int) string { return reviewBy("greedy", fmt.Sprint("user ", i)) },
			otherBy:  func(i int) string { return reviewBy(fmt.Sprint("other ", i%3), "") },
		},
		"one slot": {
			options:  Options{MaxEvaluations: 1},
			greedyBy: func(int) string { return reviewBy("greedy", "") },
			otherBy:  func(int) string { return reviewBy("other", "") },
		},
		"one controller for all namespaces": {
			options:  Options{MaxEvaluations: 2},
			greedyBy: func(int) string { return reviewBy("greedy", " controller") },
			otherBy:  func(i int) string { return reviewBy(fmt.Sprint("other ", i), " controller") },
		},
		"users of cluster-scoped objects": {
			options:  Options{MaxEvaluations: 8},
			greedyBy: func(int) string { return reviewBy("", "greedy") },
			otherBy:  func(i int) string { return reviewBy("", fmt.Sprint("other ", i%3)) },
		},
		"large reviews": {
			options:  Options{MaxEvaluations: 8, MaxInFlightBytes: 256 << 20},
			greedyBy: func(int) string { return reviewBy("greedy", "") },
			otherBy:  func(i int) string { return reviewBy(fmt.Sprint("other ", i%3), "") },
			padding:  largeReview,
		},
		"the limit of requests": {
			options:  Options{MaxEvaluations: 8, MaxInFlight: 70},
			greedyBy: func(int) string { return reviewBy("greedy", "") },
			otherBy:  func(i int) string { return reviewBy(fmt.Sprint("other ", i%3), "") },
		},
		"reviews of policies": {
			path:     reviewPath,
			greedyBy: func(int) string { return reviewBy("", "greedy") },
			otherBy:  func(i int) string { return reviewBy("", fmt.Sprint("other ", i%3)) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				order := &ordered{}
				tc.options.Evaluator, tc.options.Log = order, logr.Discard()
				h := handlerOf(t, tc.options)
				path := orDefault(tc.path, "/validate/group") + "?timeout=30s"
				padding := strings.Repeat(" ", tc.padding)
				var group sync.WaitGroup
				for i := range greedy {
					group.Go(func() { serve(h, path, tc.greedyBy(i)+padding) })
				}
				synctest.Wait()
				for i := range others {
					group.Go(func() {
						if w := serve(h, path, tc.otherBy(i)+padding); w.Code != http.StatusOK {
							t.Errorf("request %d: code %d: %s", i, w.Code, w.Body)
						}
					})
				}
				group.Wait()
				first := slices.IndexFunc(order.answered, func(flow string) bool { return strings.HasPrefix(flow, "greedy") })
				if first != others {
					t.Errorf("%d requests of others were answered before the first greedy one, want %d", first, others)
				}
			})
		})
	}
}
