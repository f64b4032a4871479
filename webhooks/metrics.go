package webhooks

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ostiary/ostiary/internal/authentication"
	"github.com/ostiary/ostiary/internal/connections"
)

// answerCodes are the status codes that the handler answers with.
func answerCodes() []int {
	return []int{
		http.StatusOK, http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestTimeout,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusInternalServerError,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}
}

// metrics holds every series from the start: their number is fixed, and counting takes no lock.
type metrics struct {
	requests        map[endpoint]map[int]prometheus.Counter
	duration        map[endpoint]prometheus.Observer
	inFlight        prometheus.Gauge
	panics          prometheus.Counter
	handshakeErrors map[string]prometheus.Counter
	rejected        map[authentication.Reason]prometheus.Counter
	shed            map[string]prometheus.Counter
	evicted         map[string]prometheus.Counter

	collectors []prometheus.Collector
}

func newMetrics() *metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ostiary_webhook_http_requests_total",
		Help: "HTTP requests to the webhook server, by admission phase (validate, mutate, review, canary or other) and status code.",
	}, []string{"phase", "code"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ostiary_webhook_http_request_duration_seconds",
		Help:    "Time from the header of a request to its answer, by admission phase.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"phase"})
	inFlight := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ostiary_webhook_http_requests_in_flight",
		Help: "HTTP requests that the webhook server is processing.",
	})
	panics := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ostiary_webhook_panics_total",
		Help: "Panics recovered while answering admission reviews.",
	})
	handshakes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ostiary_webhook_tls_handshake_errors_total",
		Help: "TLS handshakes that failed, by reason. bad_certificate: the client does not trust the serving certificate.",
	}, []string{"reason"})
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ostiary_webhook_callers_rejected_total",
		Help: "Requests whose caller was not authenticated, by reason: no_credentials, certificate, name, token, password, or not_loaded (answered with 503: the accepted credentials have not been read yet).",
	}, []string{"reason"})
	shed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ostiary_webhook_shed_total",
		Help: "Requests answered with 503, by reason: requests (too many at a time), wait (too long in the queue), memory (of large bodies or decoded objects), connections (too many), or lease (the Lease of the replica has expired).",
	}, []string{"reason"})
	evicted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ostiary_webhook_connections_evicted_total",
		Help: "Connections closed because the limit was reached, by reason: silent (it had sent no complete request), idle (its address held more than half of the limit) or full (no other connection could be closed).",
	}, []string{"reason"})

	m := &metrics{
		requests:        map[endpoint]map[int]prometheus.Counter{},
		duration:        map[endpoint]prometheus.Observer{},
		inFlight:        inFlight,
		panics:          panics,
		handshakeErrors: map[string]prometheus.Counter{},
		rejected:        map[authentication.Reason]prometheus.Counter{},
		shed:            map[string]prometheus.Counter{},
		evicted:         map[string]prometheus.Counter{},
		collectors:      []prometheus.Collector{requests, duration, inFlight, panics, handshakes, rejected, shed, evicted},
	}
	for _, phase := range []endpoint{validateEndpoint, mutateEndpoint, reviewEndpoint, canaryEndpoint, otherEndpoint} {
		m.duration[phase] = duration.WithLabelValues(string(phase))
		m.requests[phase] = map[int]prometheus.Counter{}
		for _, code := range answerCodes() {
			m.requests[phase][code] = requests.WithLabelValues(string(phase), strconv.Itoa(code))
		}
	}
	for _, reason := range connections.HandshakeReasons() {
		m.handshakeErrors[reason] = handshakes.WithLabelValues(reason)
	}
	for _, reason := range authentication.Reasons() {
		m.rejected[reason] = rejected.WithLabelValues(string(reason))
	}
	for _, reason := range shedReasons() {
		m.shed[reason] = shed.WithLabelValues(reason)
	}
	for _, reason := range connections.EvictionReasons() {
		m.evicted[reason] = evicted.WithLabelValues(reason)
	}
	return m
}

// register registers the metrics and the gauges. A nil registerer registers none.
func (m *metrics) register(registerer prometheus.Registerer, gauges ...prometheus.Collector) error {
	if registerer == nil {
		return nil
	}
	var errs []error
	for _, collector := range append(m.collectors, gauges...) {
		errs = append(errs, registerer.Register(collector))
	}
	return errors.Join(errs...)
}

func (m *metrics) answered(to endpoint, code int, took time.Duration) {
	m.requests[to][code].Inc()
	m.duration[to].Observe(took.Seconds())
}

func (m *metrics) handshakeFailed(reason string) { m.handshakeErrors[reason].Inc() }

func (m *metrics) connectionEvicted(reason string) { m.evicted[reason].Inc() }

// failed counts a request that was shed.
func (m *metrics) failed(err error) {
	var f *failure
	if errors.As(err, &f) && f.shed != "" {
		m.shed[f.shed].Inc()
	}
}

// gauges returns collectors for the bounded resources. They read the values at each scrape.
func (s *Server) gauges() []prometheus.Collector {
	policies, large, bodies := s.handler.limiters.policies, s.handler.limiters.large, s.handler.bodies
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ostiary_webhook_evaluations_in_flight",
			Help: "Requests that are being evaluated, without those that wait for an answer of the API server.",
		}, func() float64 { return float64(policies.InUse() + large.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ostiary_webhook_queued_requests",
			Help: "Requests that wait for an evaluation slot.",
		}, func() float64 { return float64(policies.Waiting() + large.Waiting()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ostiary_webhook_large_body_bytes",
			Help: "Memory held by bodies of more than 32 KiB.",
		}, func() float64 { return float64(bodies.memory.held.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ostiary_webhook_connections",
			Help: "Open connections.",
		}, func() float64 { return float64(s.open.Count()) }),
	}
}
