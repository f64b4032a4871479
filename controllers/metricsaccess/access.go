// Package metricsaccess serves metrics to clients whose bearer token has the permission for them. It asks the API server
// with TokenReviews and SubjectAccessReviews, and bounds their number, because every client can send any number of tokens.
package metricsaccess

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/internal/connections"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Path is the URL for which RBAC grants get.
const Path = "/metrics"

const (
	// acceptedFor and rejectedFor are how long the result for a token is used. A revoked token has access for acceptedFor.
	acceptedFor = time.Minute
	rejectedFor = 10 * time.Second
	// knownFor is how long an accepted token is preferred to others.
	knownFor = time.Hour
	// maxAccepted and maxRejected bound the results. A result takes some hundred bytes, also for the longest token.
	maxAccepted = 1024
	maxRejected = 4096
	// maxText bounds texts of others in answers and log lines.
	maxText = 256
	// timeout is for one TokenReview with its SubjectAccessReview. Prometheus waits 10 seconds for a scrape.
	timeout = 8 * time.Second

	// sources is the number of rate limits for unknown tokens. Client addresses are distributed over them, so that a client
	// with one address uses up one limit of many.
	sources = 16
	// sourceInterval and sourceBurst limit the reviews of unknown tokens for each of the sources.
	sourceInterval = time.Second
	sourceBurst    = 5
	// knownInterval and knownBurst limit the reviews of known tokens. A known token needs one in acceptedFor.
	knownInterval = acceptedFor / maxAccepted
	knownBurst    = 64
)

// Options configure an Access.
type Options struct {
	// Client sends the reviews.
	Client kubernetes.Interface
	// Next answers requests with permission.
	Next http.Handler
	// Clock gives the age of results.
	Clock cache.Clock
	Log   logr.Logger
}

// Access is an HTTP handler that passes requests with permission to Options.Next. It keeps hashes of tokens, never tokens.
type Access struct {
	options Options
	key     [sha256.Size]byte
	seed    maphash.Seed

	accepted, rejected *cache.LRUExpireCache // by digest: struct{}, *refusal
	known              *cache.LRUExpireCache // by digest: struct{}

	strangers  [sources]*rate.Limiter
	returning  *rate.Limiter
	logRefusal *rate.Limiter
}

// digest is a keyed hash of a token.
type digest [sha256.Size]byte

// refusal is the answer to a request without permission.
type refusal struct {
	code    int
	message string
	err     error // for the log only: it can contain addresses
}

// New returns an Access.
func New(o Options) *Access {
	a := &Access{
		options:    o,
		seed:       maphash.MakeSeed(),
		accepted:   cache.NewLRUExpireCacheWithClock(maxAccepted, o.Clock),
		rejected:   cache.NewLRUExpireCacheWithClock(maxRejected, o.Clock),
		known:      cache.NewLRUExpireCacheWithClock(maxAccepted, o.Clock),
		returning:  rate.NewLimiter(rate.Every(knownInterval), knownBurst),
		logRefusal: rate.NewLimiter(rate.Every(10*time.Second), 3),
	}
	for i := range a.strangers {
		a.strangers[i] = rate.NewLimiter(rate.Every(sourceInterval), sourceBurst)
	}
	_, _ = rand.Read(a.key[:]) // never fails
	return a
}

// ServeHTTP implements http.Handler.
func (a *Access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refused := a.check(r)
	if refused == nil {
		connections.OfRequest(r).Prove()
		a.options.Next.ServeHTTP(w, r)
		return
	}
	if a.logRefusal.Allow() {
		a.options.Log.Info("Rejected a request for metrics", "address", r.RemoteAddr, "code", refused.code,
			"reason", refused.message, "error", refused.err)
	}
	header := w.Header()
	switch refused.code {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodGet)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		header.Set("Retry-After", "1")
	}
	http.Error(w, refused.message, refused.code)
}

// check returns nil for a request with permission. Results that are known come first, so that they cost no review.
func (a *Access) check(r *http.Request) *refusal {
	if r.Method != http.MethodGet {
		return &refusal{code: http.StatusMethodNotAllowed, message: "use GET"}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return &refusal{code: http.StatusUnauthorized, message: "present a bearer token of a user who may get the URL " + Path}
	}
	key := a.digest(token)
	if _, ok := a.accepted.Get(key); ok {
		return nil
	}
	if refused, ok := a.rejected.Get(key); ok {
		return refused.(*refusal)
	}
	if !a.limitOf(key, r).AllowN(a.options.Clock.Now(), 1) {
		return &refusal{code: http.StatusTooManyRequests, message: "too many tokens that are not known yet: try again"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	refused, err := a.review(ctx, token)
	if err != nil {
		return &refusal{code: http.StatusServiceUnavailable, message: "the API server did not review the token: try again", err: err}
	}
	a.record(key, refused)
	return refused
}

func (a *Access) digest(token string) digest {
	hash := hmac.New(sha256.New, a.key[:])
	hash.Write([]byte(token))
	return digest(hash.Sum(nil))
}

// limitOf returns the rate limit for the review of a token. Strangers cannot use up the limit of known tokens.
func (a *Access) limitOf(key digest, r *http.Request) *rate.Limiter {
	if _, ok := a.known.Get(key); ok {
		return a.returning
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return a.strangers[a.sourceOf(host)]
}

func (a *Access) sourceOf(host string) uint64 { return maphash.String(a.seed, host) % sources }

func (a *Access) record(key digest, refused *refusal) {
	if refused != nil {
		a.known.Remove(key)
		a.rejected.Add(key, refused, rejectedFor)
		return
	}
	a.known.Add(key, struct{}{}, knownFor)
	a.accepted.Add(key, struct{}{}, acceptedFor)
}

// review asks the API server for the user of a token and for the permission of that user. It returns an error if the API
// server does not answer.
func (a *Access) review(ctx context.Context, token string) (*refusal, error) {
	authenticated, err := a.options.Client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("reviewing the token: %w", err)
	}
	if !authenticated.Status.Authenticated {
		return &refusal{code: http.StatusUnauthorized, message: "the API server does not accept the token"}, nil
	}
	user := authenticated.Status.User
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:                  user.Username,
		UID:                   user.UID,
		Groups:                user.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: Path, Verb: "get"},
	}
	if len(user.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
	}
	for name, values := range user.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	authorized, err := a.options.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("reviewing the permission: %w", err)
	}
	if authorized.Status.Allowed && !authorized.Status.Denied {
		return nil, nil
	}
	return &refusal{code: http.StatusForbidden,
		message: fmt.Sprintf("the user %q may not get the URL %s: bind the ClusterRole ostiary-metrics-reader",
			truncate.Line(user.Username, maxText), Path)}, nil
}
