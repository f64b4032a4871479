package audit

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/audit/results"
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
	pending     prometheus.Gauge
	evaluations prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_audit_violations",
			Help: "Stored objects that fail a validation as they are (operation UPDATE), or only if they are created again (CREATE). Only the leader reports them, in at most 2,000 series for each operation.",
		}, []string{"policy", "namespace", "operation"}),
		incomplete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ostiary_audit_incomplete_resources",
			Help: "Resources that the audit could not list completely.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ostiary_audit_pending_policies",
			Help: "Policies whose current generation has not been evaluated on all stored objects yet. " +
				"Until then, ostiary_audit_violations has the numbers of an earlier generation, if there is one. " +
				"Reported by the leader.",
		}),
		evaluations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ostiary_audit_evaluations_total",
			Help: "Evaluations of a policy on a stored object.",
		}),
	}
	registry.MustRegister(m.violations, m.incomplete, m.pending, m.evaluations)
	return m
}

func (m *metrics) reset() {
	m.violations.Reset()
	m.incomplete.Set(0)
	m.pending.Set(0)
}

// set publishes the numbers of violations.
func (m *metrics) set(s results.Snapshot) {
	m.violations.Reset()
	m.setViolations(s, admissionv1.Update, results.Counts.Violations)
	m.setViolations(s, admissionv1.Create, results.Counts.ViolationsAnew)
	m.incomplete.Set(float64(s.Incomplete))
	m.pending.Set(float64(len(s.Pending)))
}

func (m *metrics) setViolations(s results.Snapshot, operation admissionv1.Operation, number func(results.Counts) int64) {
	var pairs []results.Pair
	for pair, c := range s.Counts {
		if number(c) > 0 {
			pairs = append(pairs, pair)
		}
	}
	slices.SortFunc(pairs, func(a, b results.Pair) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Namespace, b.Namespace))
	})
	for i, pair := range pairs {
		n := float64(number(s.Counts[pair]))
		if i >= maxSeries {
			pair = results.Pair{Policy: other, Namespace: other}
		}
		m.violations.WithLabelValues(pair.Policy, pair.Namespace, string(operation)).Add(n)
	}
}
