package configurations

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/registration"
)

// Metrics are those of the generated webhook configurations.
type Metrics struct {
	registered, failClosed *prometheus.GaugeVec // by phase
	refusedConditions      prometheus.Gauge
}

// NewMetrics returns Metrics, and registers them.
func NewMetrics(registry prometheus.Registerer) Metrics {
	m := Metrics{
		registered: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_registered_configurations",
			Help: "Generated webhook configurations in the API server, by phase: mutate or validate. Reported by the leader.",
		}, []string{"phase"}),
		failClosed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_fail_closed_configurations",
			Help: "Generated webhook configurations whose requests are denied while Ostiary does not answer, by phase: mutate or validate. Reported by the leader.",
		}, []string{"phase"}),
		refusedConditions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ostiary_rejected_match_conditions",
			Help: "Different match conditions that the API server has rejected since the leader's process started. Only Ostiary evaluates them. Reported by the leader.",
		}),
	}
	registry.MustRegister(m.registered, m.failClosed, m.refusedConditions)
	return m
}

// count counts the planned configurations, and those that fail closed.
func (m Metrics) count(plan registration.Plan) {
	all, closed := map[registration.Phase]int{}, map[registration.Phase]int{}
	for i := range plan.Groups {
		group := &plan.Groups[i]
		all[group.Phase]++
		if slices.ContainsFunc(registration.Webhooks(group.Configuration), failsClosed) {
			closed[group.Phase]++
		}
	}
	for _, phase := range []registration.Phase{registration.PhaseMutate, registration.PhaseValidate} {
		m.registered.WithLabelValues(string(phase)).Set(float64(all[phase]))
		m.failClosed.WithLabelValues(string(phase)).Set(float64(closed[phase]))
	}
}

func failsClosed(w admissionregistrationv1.MutatingWebhook) bool {
	return ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail
}
