package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ostiary/ostiary/internal/pki"
)

type metrics struct {
	expiry   *prometheus.GaugeVec
	rejected *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_certificate_expiry_timestamp_seconds",
			Help: "When the certificate expires, in seconds since 1970: of the leaf that this replica serves, and of the CA that signed it.",
		}, []string{"certificate"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_certificate_rejected_total",
			Help: "Contents of the serving Secret that this replica refused to serve while it kept the previous certificate, by what was wrong with them: encoding, key, names, usage, validity or chain.",
		}, []string{"reason"}),
	}
	for _, reason := range pki.Reasons() {
		m.rejected.WithLabelValues(string(reason))
	}
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.expiry, m.rejected} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("registering the metrics of certificates: %w", err)
		}
	}
	return nil
}

func (m *metrics) served(leaf, ca *x509.Certificate) {
	m.expiry.WithLabelValues("leaf").Set(float64(leaf.NotAfter.Unix()))
	if ca != nil {
		m.expiry.WithLabelValues("ca").Set(float64(ca.NotAfter.Unix()))
	}
}

func (m *metrics) refused(reason pki.Reason) { m.rejected.WithLabelValues(string(reason)).Inc() }

// reasonOf is the reason in an error of internal/pki.
func reasonOf(err error) pki.Reason {
	var rejected *pki.RejectedError
	if errors.As(err, &rejected) {
		return rejected.Reason
	}
	return pki.ReasonEncoding
}
