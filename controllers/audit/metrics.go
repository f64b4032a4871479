package audit

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxSeries limits the pairs of the labels policy and namespace. Further pairs are
	// counted together.
	maxSeries = 2000
	other     = "(other)" // not a valid name
)

type metrics struct {
	violations  *prometheus.GaugeVec
	incomplete  prometheus.Gauge
	evaluations prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_audit_violations",
			Help: "Stored objects that fail a validation. Only the leader reports them, in at most 2,000 series.",
		}, []string{"policy", "namespace"}),
		incomplete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ostiary_audit_incomplete_resources",
			Help: "Resources that the audit could not list completely.",
		}),
		evaluations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ostiary_audit_evaluations_total",
			Help: "Evaluations of a policy on a stored object.",
		}),
	}
	registry.MustRegister(m.violations, m.incomplete, m.evaluations)
	return m
}

func (m *metrics) reset() {
	m.violations.Reset()
	m.incomplete.Set(0)
}

// set publishes the numbers of violations.
func (m *metrics) set(r *results) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []pairKey
	for key, c := range r.counts {
		if c.violations() > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b pairKey) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.namespace, b.namespace))
	})
	m.violations.Reset()
	for i, key := range keys {
		n := float64(r.counts[key].violations())
		if i >= maxSeries {
			key = pairKey{other, other}
		}
		m.violations.WithLabelValues(key.policy, key.namespace).Add(n)
	}
	incomplete := 0
	for _, known := range r.resources {
		if known.failure != "" {
			incomplete++
		}
	}
	m.incomplete.Set(float64(incomplete))
}
