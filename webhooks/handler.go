package webhooks

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/internal/connections"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	// minTimeout, defaultTimeout and maxTimeout are those of Kubernetes for a webhook's timeoutSeconds.
	minTimeout, defaultTimeout, maxTimeout = time.Second, 10 * time.Second, 30 * time.Second

	// answerTimeout is how long a caller may take to read its answer, which stays in memory until then. API servers read
	// at once.
	answerTimeout = 10 * time.Second

	contentType = "application/json"

	// reviewPath is the path of the webhook for WebhookPolicies.
	reviewPath = registration.ReviewPath
)

// handler answers requests. Only its counters and limiters change.
type handler struct {
	evaluator Evaluator
	log       logr.Logger
	metrics   *metrics
	clock     clock.PassiveClock
	bodies    *bodyReader
	decoded   *unstructuredjson.Memory
	limiters  limiters
	draining  *atomic.Bool
	callers   callerCheck
	accepts   func(capability string) bool
	expired   func() bool

	answerTimeout time.Duration
}

func newHandler(o Options, m *metrics, draining *atomic.Bool) *handler {
	return &handler{
		evaluator: o.Evaluator,
		log:       o.Log,
		metrics:   m,
		clock:     o.Clock,
		bodies:    newBodyReader(o.MaxBodyBytes, o.MaxInFlightBytes),
		decoded:   unstructuredjson.NewMemory(o.MaxDecodedBytes),
		limiters:  newLimiters(o),
		draining:  draining,
		callers:   newCallerCheck(o, m),
		accepts:   o.Accepts,
		expired:   o.Expired,

		answerTimeout: answerTimeout,
	}
}

// ServeHTTP answers every request, also after an error or a panic.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	h.metrics.inFlight.Inc()
	defer h.metrics.inFlight.Dec()
	c := connections.OfRequest(r)
	c.Begin()
	defer func() { c.End(h.clock.Now()) }()

	to, group := h.route(r.URL)
	answer, err := h.answer(w, r, to, group)
	code := h.write(w, c, answer, err)
	h.metrics.answered(to, code, time.Since(began))
}

// answer returns the encoded review, or a *failure. A panic becomes a *failure.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, to endpoint, group string) (answer []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			h.metrics.panics.Inc()
			h.log.Error(panicError(cause), "Recovered from a panic", "phase", to, "group", group, "stack", string(debug.Stack()))
			answer, err = nil, &failure{code: http.StatusInternalServerError, message: internalMessage}
		}
	}()
	if err := h.callers.check(w, r); err != nil {
		return nil, err
	}
	h.bodies.startDeadline(w)
	timeout, err := checkRequest(r, to)
	if err != nil {
		h.bodies.stopReading(w)
		return nil, err
	}
	if h.expired() {
		h.bodies.stopReading(w)
		return nil, leaseExpired(timeout)
	}
	c := connections.OfRequest(r)
	if c.IsExcess() {
		h.bodies.stopReading(w)
		return nil, shed(shedConnections, "too many connections", timeout)
	}
	// The timeout includes the time for reading the body.
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	body, done, err := h.bodies.read(ctx, w, r, to)
	if err != nil {
		return nil, h.waitFailed(err, timeout)
	}
	defer done()
	c.Prove()
	e := parseEnvelope(body)
	slot, err := h.limiters.of(to, len(body)).Acquire(ctx, e.flow(body), maxWait(ctx))
	if err != nil {
		return nil, h.waitFailed(err, timeout)
	}
	defer slot.Release()
	answer, err = h.review(slot.Context(ctx), to, group, e, body, timeout)
	if h.expired() { // the process may have been paused during the evaluation
		return nil, leaseExpired(timeout)
	}
	return answer, err
}

// leaseExpired returns the failure for a request to a replica whose policies may be old.
func leaseExpired(timeout time.Duration) error {
	return shed(shedLease, "the replica's Lease has expired, so its policies may be old", timeout)
}

func (h *handler) review(ctx context.Context, to endpoint, group string, e *envelope, body []byte, timeout time.Duration) ([]byte, error) {
	began := time.Now()
	account := h.decoded.Open()
	defer account.Close()
	request, version, err := e.decode(body, account)
	if err != nil {
		return nil, decodingFailed(err, timeout)
	}
	response, err := h.evaluate(unstructuredjson.WithAccount(ctx, account), to, group, request)
	if err == nil && response == nil {
		err = errors.New("the evaluator returned no response")
	}
	if err != nil {
		return nil, h.evaluationFailed(err, to, group, request, timeout)
	}
	h.logDecision(to, group, request, response, time.Since(began))
	answer, err := encodeReview(version, request.UID, response)
	if err != nil {
		return nil, h.evaluationFailed(fmt.Errorf("encoding the answer: %w", err), to, group, request, timeout)
	}
	return answer, nil
}

func (h *handler) evaluate(ctx context.Context, to endpoint, group string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if to == canaryEndpoint {
		return canary(request), nil
	}
	if to == reviewEndpoint {
		return h.evaluator.Review(ctx, request)
	}
	return h.evaluator.Evaluate(ctx, registration.GroupKey{Phase: registration.Phase(to), Name: group}, request)
}

func (h *handler) evaluationFailed(err error, to endpoint, group string, request *admissionv1.AdmissionRequest, timeout time.Duration) error {
	var retry interface{ RetryAfter() time.Duration }
	var bad interface{ BadRequest() bool }
	var busy *unstructuredjson.BusyError
	switch {
	case errors.As(err, &busy):
		return decodingFailed(busy, timeout)
	case errors.As(err, &retry):
		return &failure{code: http.StatusServiceUnavailable, message: err.Error(), retryAfter: retryAfter(retry.RetryAfter())}
	case errors.As(err, &bad) && bad.BadRequest():
		return &failure{code: http.StatusBadRequest, message: err.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return noDecision(timeout)
	}
	h.log.Error(err, "Evaluating an admission request failed", "phase", to, "group", group, "uid", request.UID)
	return &failure{code: http.StatusInternalServerError, message: internalMessage}
}

func (h *handler) logDecision(to endpoint, group string, in *admissionv1.AdmissionRequest, out *admissionv1.AdmissionResponse, took time.Duration) {
	log := h.log.V(1)
	if !log.Enabled() {
		return
	}
	log.Info("Decided", "phase", to, "group", group, "uid", in.UID, "operation", in.Operation,
		"resource", in.Resource.String(), "subResource", in.SubResource, "namespace", in.Namespace, "name", in.Name,
		"allowed", out.Allowed, "warnings", len(out.Warnings), "duration", took)
}

// write sends the answer or the failure and returns the status code. It closes the connection after a failure, so that a
// retry may reach another replica; when the connection has reached its maximum age or number of requests; and while
// draining.
func (h *handler) write(w http.ResponseWriter, c *connections.Conn, answer []byte, err error) int {
	header, code := w.Header(), http.StatusOK
	if err != nil || h.draining.Load() || c.Retire(h.clock.Now()) {
		header.Set("Connection", "close")
	}
	if err == nil {
		header.Set("Content-Type", contentType)
	} else {
		answer, code = describe(header, err)
		h.metrics.failed(err)
	}
	header.Set("Content-Length", strconv.Itoa(len(answer)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.answerTimeout)) // net/http resets it for the next request
	w.WriteHeader(code)
	_, _ = w.Write(answer) // an error means that the client is gone
	return code
}

// route returns the endpoint and the group of a path. Paths are neither cleaned nor decoded. A path whose capability is
// not accepted has otherEndpoint.
func (h *handler) route(u *url.URL) (endpoint, string) {
	capability, path := registration.SplitPath(u.Path)
	if !h.accepts(capability) || u.RawPath != "" {
		return otherEndpoint, ""
	}
	if path == reviewPath {
		return reviewEndpoint, ""
	}
	for _, phase := range []endpoint{validateEndpoint, mutateEndpoint} {
		group, ok := strings.CutPrefix(path, "/"+string(phase)+"/")
		if ok && isSubdomain(group) {
			return phase, group
		}
		if path == registration.CanaryPath+string(phase) {
			return canaryEndpoint, string(phase)
		}
	}
	return otherEndpoint, ""
}

// isSubdomain reports whether name is a DNS-1123 subdomain, as are names of Kubernetes objects. The regular expression
// of Kubernetes is slower than the rest of the routing.
func isSubdomain(name string) bool {
	if name == "" || len(name) > maxShort {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

// checkRequest rejects requests that are not calls of a webhook, before the body is read. It returns how long the caller
// waits for an answer.
func checkRequest(r *http.Request, to endpoint) (time.Duration, error) {
	switch {
	case to == otherEndpoint:
		return 0, &failure{code: http.StatusNotFound, message: "no such path"}
	case r.Method != http.MethodPost:
		return 0, &failure{code: http.StatusMethodNotAllowed, message: "the method must be POST"}
	case !isJSON(r.Header.Get("Content-Type")):
		return 0, &failure{code: http.StatusUnsupportedMediaType, message: "the content type must be " + contentType}
	}
	return requestTimeout(r.URL)
}

func isJSON(value string) bool {
	if value == contentType {
		return true
	}
	media, _, err := mime.ParseMediaType(value)
	return err == nil && media == contentType
}

// requestTimeout returns the timeout in the query, limited to the bounds of Kubernetes. Without one it returns the
// default of Kubernetes. It rejects an invalid one.
func requestTimeout(u *url.URL) (time.Duration, error) {
	if u.RawQuery == "" {
		return defaultTimeout, nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return 0, &failure{code: http.StatusBadRequest, message: "the query is malformed"}
	}
	value := query.Get("timeout")
	if value == "" {
		return defaultTimeout, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return 0, &failure{code: http.StatusBadRequest, message: "the query's timeout must be a positive duration such as 5s"}
	}
	return min(max(timeout, minTimeout), maxTimeout), nil
}

// panicError returns the text of a panic for the log. Only errors of the runtime have their own text: other texts may
// repeat the request.
func panicError(cause any) error {
	if err, ok := cause.(runtime.Error); ok {
		return err
	}
	return fmt.Errorf("panic with a value of type %T", cause)
}
