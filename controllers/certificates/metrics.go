package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ostiary/ostiary/internal/pki"
)

// metrics are reported by every replica.
type metrics struct {
	expiry    *prometheus.GaugeVec
	created   *prometheus.GaugeVec
	epoch     *prometheus.GaugeVec
	rejected  *prometheus.CounterVec
	fallbacks prometheus.Counter
	skew      prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_expiry_timestamp_seconds",
			Help: "Expiry of the served certificate (leaf) and of the CA that signed it, in seconds since 1970.",
		}, []string{"certificate"}),
		created: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_not_before_timestamp_seconds",
			Help: "Start of validity of the served certificate (leaf) and of the CA that signed it, in seconds since 1970.",
		}, []string{"certificate"}),
		epoch: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_epoch",
			Help: "Number of the CA, counted from the first: of the served certificate (served) and of the trust bundle (trusted).",
		}, []string{"of"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_certificate_rejected_total",
			Help: "Rejected versions of the serving Secret, by reason: encoding, key, names, usage, validity, chain or epoch. The replica keeps the certificate that it serves.",
		}, []string{"reason"}),
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ostiary_certificate_fallbacks_total",
			Help: "Fall-backs to the certificate of the previous CA because a client rejected the certificate of the new CA.",
		}),
		skew: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ostiary_clock_skew_seconds",
			Help: "Seconds by which this replica's clock is ahead of the API server's.",
		}),
	}
	for _, reason := range pki.Reasons() {
		m.rejected.WithLabelValues(string(reason))
	}
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	_, err := register(r, m.expiry, m.created, m.epoch, m.rejected, m.fallbacks, m.skew)
	return err
}

// register returns what undoes it.
func register(r prometheus.Registerer, collectors ...prometheus.Collector) (func(), error) {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of certificates: %w", err)
		}
	}
	return func() {
		for _, c := range collectors {
			r.Unregister(c)
		}
	}, nil
}

func (m *metrics) served(held pki.ServingState) {
	m.epoch.WithLabelValues("served").Set(float64(held.PresentedEpoch()))
	m.epoch.WithLabelValues("trusted").Set(float64(held.Serving.TrustEpoch))
	leaf := held.Presented().Certificate()
	if leaf == nil {
		return
	}
	m.lifetime("leaf", leaf)
	if ca := held.Serving.Bundle.Anchor(held.Presented()); ca != nil {
		m.lifetime("ca", ca)
	}
}

func (m *metrics) lifetime(name string, c *x509.Certificate) {
	m.expiry.WithLabelValues(name).Set(float64(c.NotAfter.Unix()))
	m.created.WithLabelValues(name).Set(float64(c.NotBefore.Unix()))
}

func (m *metrics) refused(reason pki.Reason) { m.rejected.WithLabelValues(string(reason)).Inc() }

// reasonOf returns the reason in an error of internal/pki.
func reasonOf(err error) pki.Reason {
	var rejected *pki.RejectedError
	if errors.As(err, &rejected) {
		return rejected.Reason
	}
	return pki.ReasonEncoding
}

// rotatorMetrics are reported by the leader.
type rotatorMetrics struct {
	phase    *prometheus.GaugeVec
	epoch    prometheus.Gauge
	replicas *prometheus.GaugeVec
	stale    prometheus.Gauge
	writes   *prometheus.CounterVec
	problem  *prometheus.GaugeVec
	external *prometheus.GaugeVec
}

func newRotatorMetrics() *rotatorMetrics {
	m := &rotatorMetrics{
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_rotation_phase",
			Help: "Phase of the CA rotation: 1 for the current one of Steady, Trusting and Serving. Reported by the leader.",
		}, []string{"phase"}),
		epoch: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ostiary_certificate_authority_epoch",
			Help: "Number of the current CA, counted from the first. Reported by the leader.",
		}),
		replicas: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_replicas",
			Help: "Replicas, by the CA of the oldest certificate that they may serve: current, previous or none. Reported by the leader.",
		}, []string{"serving"}),
		stale: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ostiary_certificate_stale_trust",
			Help: "1 while a webhook configuration has an outdated trust bundle. Reported by the leader.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_certificate_writes_total",
			Help: "Writes of the two Secrets, by action: CreateCA, RestoreCA, IssueLeaf, RestoreLeaf, PublishBundle or Retire. Reported by the leader.",
		}, []string{"action"}),
		problem: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_source_problem",
			Help: "1 for the current problem with the certificate of cert-manager or another external issuer: missing, forbidden, not_installed (cert-manager), refused (its Certificate), issuing (in progress), failed, expiring (not renewed in time), or, for the content of the Secret, encoding, key, names, usage, validity or chain. Absent if Ostiary issues its own. Reported by the leader.",
		}, []string{"reason"}),
		external: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_source_expiry_timestamp_seconds",
			Help: "Expiry of the certificate of cert-manager or another external issuer, in seconds since 1970. Absent without one. Reported by the leader.",
		}, nil),
	}
	for _, kind := range pki.Kinds() {
		m.writes.WithLabelValues(string(kind))
	}
	return m
}

func (m *rotatorMetrics) register(r prometheus.Registerer) (func(), error) {
	return register(r, m.phase, m.epoch, m.replicas, m.stale, m.writes, m.problem, m.external)
}

// offered reports the problem and the expiry of the external certificate, which
// may be nil.
func (m *rotatorMetrics) offered(problem string, leaf *x509.Certificate) {
	for _, reason := range sourceReasons() {
		m.problem.WithLabelValues(reason).Set(boolToFloat(reason == problem))
	}
	m.external.Reset()
	if leaf != nil {
		m.external.WithLabelValues().Set(float64(leaf.NotAfter.Unix()))
	}
}

func (m *rotatorMetrics) observed(s pki.State, o pki.Observed) {
	for _, phase := range pki.Phases() {
		m.phase.WithLabelValues(string(phase)).Set(boolToFloat(phase == s.Phase()))
	}
	m.epoch.Set(float64(s.CA.Epoch))
	m.stale.Set(boolToFloat(!o.Published.Current))
	serving := map[string]int{"current": 0, "previous": 0, "none": 0}
	for _, r := range o.Replicas {
		switch {
		case r.Epoch == 0:
			serving["none"]++
		case r.Epoch < s.CA.Epoch:
			serving["previous"]++
		default:
			serving["current"]++
		}
	}
	for name, count := range serving {
		m.replicas.WithLabelValues(name).Set(float64(count))
	}
}

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
