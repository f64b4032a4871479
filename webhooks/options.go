// Package webhooks is the HTTP edge: it takes admission reviews from API servers over TLS, refuses what is malformed,
// too large or too much, hands each request to an Evaluator, and answers in the version that was asked.
package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/internal/registration"
)

// endpoint is what a path addresses. Metrics and logs have it as the phase.
type endpoint string

// The two phases of admission, which have call groups, the review of WebhookPolicies, the canaries, and any other path,
// which is answered with 404.
const (
	validateEndpoint = endpoint(registration.PhaseValidate)
	mutateEndpoint   = endpoint(registration.PhaseMutate)
	reviewEndpoint   = endpoint("review")
	canaryEndpoint   = endpoint("canary")
	otherEndpoint    = endpoint("other")
)

// Evaluator answers one admission request: Evaluate with the policies of a call group, Review for a WebhookPolicy.
//
// The request is the evaluator's to keep: no memory of it is used again. Object, OldObject and Options hold what was
// sent, which is not checked to be JSON, or nothing. The context ends when the API server stops waiting, and carries the
// account from which decoding takes memory: see unstructuredjson.AccountOf. The response's UID is set by the caller of Evaluate.
//
// An error means that there is no decision; it never lets a request pass by itself. Errors are told apart by what
// stands in their chain:
//   - interface{ RetryAfter() time.Duration }: 503 with Retry-After, and the error's text. API servers then try again,
//     with another replica, for as long as the webhook's timeout lasts. For a group that is not loaded yet, too.
//   - interface{ BadRequest() bool } that returns true: 400 with the error's text.
//   - context.DeadlineExceeded and context.Canceled: 504.
//   - any other error, and a panic: 500 without its text, which goes to the log.
type Evaluator interface {
	Evaluate(ctx context.Context, group registration.GroupKey, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)
	Review(ctx context.Context, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)
}

// Options says what a Server serves, and how much of it at a time. Zero values of the limits mean the defaults.
type Options struct {
	// Address is where to listen, such as ":9443". Not used if Listener is set.
	Address string
	// Listener is listened on instead of Address. The server adds TLS, and closes it at the end.
	Listener net.Listener
	// GetCertificate returns the certificate to present. It is called in every handshake, so it must not wait.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Accepts reports whether a capability, the secret first segment of the path,
	// is one that API servers call. It is called for every request, so it must not
	// wait, and how long it takes must not depend on the capability.
	Accepts func(capability string) bool
	// Distrusted is told that a client ended a handshake because it does not trust the certificate. It must not wait.
	Distrusted func()
	// Evaluator decides.
	Evaluator Evaluator
	// Authenticator decides who may call. Without one, everybody may.
	Authenticator Authenticator
	// Expired reports whether this replica may answer from old policies, because nobody waits for it any more. It is
	// asked twice for every request, so it must take no lock. While it is true, every request is answered with 503.
	// Without it, that is never so.
	Expired func() bool
	// Registerer takes the metrics. Without one they are not published.
	Registerer prometheus.Registerer
	// Log takes failures, and at verbosity 1 decisions and connection errors. It never gets request bodies.
	Log logr.Logger

	// MaxBodyBytes is the largest body that is read. Default 28 MiB: the largest review that an API server sends. It
	// takes requests of up to 3 MiB and stores objects of up to 1.5 MiB; an UPDATE has one of each. It escapes <, >, &
	// and control characters with six bytes: 18 MiB and 9 MiB. The rest of a review is bounded by maxEnvelope, 1 MiB.
	MaxBodyBytes int64
	// MaxConnections is the number of connections beyond which room is made by closing silent ones, and, where there
	// are none, requests on further ones are answered with 503. Default 2,000.
	MaxConnections int
	// MaxEvaluations is the number of requests evaluated at a time. Default 4 for each processor: see
	// docs/performance.md.
	MaxEvaluations int
	// MaxInFlight is the number of requests that are evaluated or wait for it, beyond which they are answered with 503.
	// Default 1,000, and at least MaxEvaluations.
	MaxInFlight int
	// MaxInFlightBytes bounds the bodies above 32 KiB that are held at a time. Beyond it slow ones are dropped, and
	// others wait, and are answered with 503 if that takes too long. Smaller ones are bounded by MaxConnections, so that
	// large bodies cannot keep them out. Default 64 MiB.
	MaxInFlightBytes int64
	// MaxDecodedBytes bounds what reviews take once they are decoded, beyond 256 KiB of each; beyond it they are answered
	// with 503. One of them may take 96 MiB. Default 160 MiB: see docs/adr/0016-decoding.md.
	MaxDecodedBytes int64
	// Clock says how old connections are. Default: the real one.
	Clock clock.PassiveClock
	// Random returns a number from 0 up to n, without n, by which the ages differ at which connections are closed.
	// Default: the runtime's.
	Random func(n int64) int64
	// Drain is how the server ends.
	Drain Drain
}

// Drain says how long the server goes on after it was told to end. API servers do not try a failed call again, and
// learn late that a replica is gone. So the server goes on answering and asks with every answer that the connection be
// closed, until no connection is left.
type Drain struct {
	// Min is how long connections are awaited even if none is open. Default 15 s.
	Min time.Duration
	// Quiet is how long there must have been no connection. Default 2 s.
	Quiet time.Duration
	// Max is when the connections that are left are closed. Default 110 s: API servers close idle ones after 90 s.
	Max time.Duration
}

func (o *Options) complete() {
	setDefault(&o.MaxBodyBytes, 28<<20)
	setDefault(&o.MaxConnections, 2000)
	setDefault(&o.MaxEvaluations, 4*runtime.GOMAXPROCS(0))
	setDefault(&o.MaxInFlight, max(1000, o.MaxEvaluations))
	setDefault(&o.MaxInFlightBytes, 64<<20)
	setDefault(&o.MaxDecodedBytes, 160<<20)
	setDefault(&o.Drain.Min, 15*time.Second)
	setDefault(&o.Drain.Quiet, 2*time.Second)
	setDefault(&o.Drain.Max, 110*time.Second)
	if o.Distrusted == nil {
		o.Distrusted = func() {}
	}
	if o.Expired == nil {
		o.Expired = func() bool { return false }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Int64N // it spreads load and guards nothing
	}
}

func setDefault[T comparable](field *T, value T) {
	if zero := *new(T); *field == zero {
		*field = value
	}
}

func (o *Options) validate() error {
	var errs []error
	require := func(ok bool, message string) {
		if !ok {
			errs = append(errs, errors.New(message))
		}
	}
	require(o.Address != "" || o.Listener != nil, "set Address or Listener")
	require(o.GetCertificate != nil, "set GetCertificate")
	require(o.Accepts != nil, "set Accepts")
	require(o.Evaluator != nil, "set Evaluator")
	require(o.MaxBodyBytes > 0, "MaxBodyBytes must be positive")
	require(o.MaxConnections > 0, "MaxConnections must be positive")
	require(o.MaxEvaluations > 0, "MaxEvaluations must be positive")
	require(o.MaxInFlight >= o.MaxEvaluations, "MaxInFlight must be at least MaxEvaluations")
	require(o.MaxInFlightBytes >= o.MaxBodyBytes, "MaxInFlightBytes must be at least MaxBodyBytes")
	require(o.MaxDecodedBytes > 0, "MaxDecodedBytes must be positive")
	require(o.Drain.Min > 0 && o.Drain.Quiet > 0, "Drain.Min and Drain.Quiet must be positive")
	require(o.Drain.Max >= o.Drain.Min, "Drain.Max must be at least Drain.Min")
	return errors.Join(errs...)
}
