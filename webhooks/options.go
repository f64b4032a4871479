// Package webhooks serves admission reviews from API servers over TLS. It rejects malformed, oversized and excess
// requests, passes each other request to an Evaluator, and answers in the version of the request.
package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/internal/registration"
)

// endpoint is the target of a path. Metrics and logs show it as the phase.
type endpoint string

// The endpoints: the two phases of admission, which have call groups, the review of WebhookPolicies, the canaries, and
// any other path, which is answered with 404.
const (
	validateEndpoint = endpoint(registration.PhaseValidate)
	mutateEndpoint   = endpoint(registration.PhaseMutate)
	reviewEndpoint   = endpoint("review")
	canaryEndpoint   = endpoint("canary")
	otherEndpoint    = endpoint("other")
)

// Evaluator answers one admission request: Evaluate with the policies of a call group, Review for a WebhookPolicy.
//
// The evaluator may retain the request: its memory is not reused. Object, OldObject and Options hold the bytes that were
// sent, which may be invalid JSON, or are empty. The context ends when the API server stops waiting, and carries the
// account that decoding charges: see unstructuredjson.AccountOf. The server sets the UID of the response.
//
// An error means that there is no decision, and never allows a request. An error in the chain decides the answer:
//   - interface{ RetryAfter() time.Duration }: 503 with Retry-After, and the error's text, for example while the group
//     is not loaded yet. API servers then retry, at another replica, within the webhook's timeout.
//   - interface{ BadRequest() bool } that returns true: 400 with the error's text.
//   - context.DeadlineExceeded and context.Canceled: 504.
//   - any other error, and a panic: 500 without its text, which is logged.
type Evaluator interface {
	Evaluate(ctx context.Context, group registration.GroupKey, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)
	Review(ctx context.Context, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)
}

// DefaultConnections is the default of Options.MaxConnections.
const DefaultConnections = 2000

// Options configure a Server. Zero limits have defaults.
type Options struct {
	// Address is the address to listen on, such as ":9443". It is not used if Listener is set.
	Address string
	// Listener is used instead of Address. The server adds TLS, and closes it at the end.
	Listener net.Listener
	// GetCertificate returns the serving certificate. It is called in every handshake, so it must not block.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Accepts reports whether a capability, the secret first segment of the path, is registered with API servers. It is
	// called for every request, so it must not block, and its duration must not depend on the capability.
	Accepts func(capability string) bool
	// Distrusted is called when a client ends a handshake because it does not trust the certificate. It must not block.
	Distrusted func()
	// Evaluator decides requests.
	Evaluator Evaluator
	// Authenticator authenticates callers. With nil, every caller is accepted.
	Authenticator Authenticator
	// Expired reports whether the Lease of this replica has expired, so that its policies may be old. It is called twice
	// for every request, so it must take no lock. While it returns true, every request is answered with 503. Nil: never.
	Expired func() bool
	// Registerer registers the metrics. Nil: metrics are not published.
	Registerer prometheus.Registerer
	// Log gets failures, and at verbosity 1 decisions and connection errors. It never gets request bodies.
	Log logr.Logger

	// MaxBodyBytes is the size of the largest body. Default 28 MiB: the largest review that an API server sends. It
	// accepts requests of up to 3 MiB and stores objects of up to 1.5 MiB; an UPDATE has one of each. It escapes <, >, &
	// and control characters with six bytes: 18 MiB and 9 MiB. The rest of a review is bounded by maxEnvelope, 1 MiB.
	MaxBodyBytes int64
	// MaxConnections is the number of connections above which silent ones are closed. If there are none, requests on
	// further connections are answered with 503. Default 2,000.
	MaxConnections int
	// MaxEvaluations is the number of concurrent evaluations. Default 4 for each processor: see
	// docs/performance/README.md.
	MaxEvaluations int
	// MaxInFlight is the number of requests that are evaluated or queued, above which they are answered with 503. Default
	// 1,000, and at least MaxEvaluations.
	MaxInFlight int
	// MaxInFlightBytes bounds the memory of bodies above 32 KiB. Above it, slow bodies are dropped, and others wait and
	// get 503 if the wait takes too long. MaxConnections bounds the memory of smaller bodies, so that large ones do not
	// delay them. Default 64 MiB.
	MaxInFlightBytes int64
	// MaxDecodedBytes bounds the memory of decoded reviews, without the first 256 KiB of each. Above it, reviews are
	// answered with 503. One review may take 96 MiB. Default 160 MiB: see docs/adr/0016-decoding.md.
	MaxDecodedBytes int64
	// Clock gives the age of connections. Default: the real clock.
	Clock clock.PassiveClock
	// Random returns a number in [0, n). It varies the maximum age of connections. Default: math/rand/v2.
	Random func(n int64) int64
	// Drain says how the server stops.
	Drain Drain
}

// Drain says how long the server continues after Start's context has ended. API servers do not retry a failed call, and
// learn late that a replica is gone. So the server continues to answer, and closes each connection with its next answer,
// until no connection is left.
type Drain struct {
	// Min is the minimum duration, also if no connection is open. Default 15 s.
	Min time.Duration
	// Quiet is the time without an open connection after which the drain ends. Default 2 s.
	Quiet time.Duration
	// Max is the time after which the remaining connections are closed. Default 110 s: API servers close idle ones after
	// 90 s.
	Max time.Duration
}

func (o *Options) complete() {
	setDefault(&o.MaxBodyBytes, 28<<20)
	setDefault(&o.MaxConnections, DefaultConnections)
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
