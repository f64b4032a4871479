package rollouts

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// countInterval is how often the leader counts rollouts for the metrics.
const countInterval = 15 * time.Second

// Metrics counts the rollouts of all policies. Only the leader runs it.
type Metrics struct {
	policies func() []*v1alpha1.WebhookPolicy
	rollouts *prometheus.GaugeVec
	overdue  *prometheus.GaugeVec // without labels, so that a former leader has no value
}

// NewMetrics returns metrics of the policies that a function returns, with their statuses.
func NewMetrics(registerer prometheus.Registerer, policies func() []*v1alpha1.WebhookPolicy) *Metrics {
	m := &Metrics{
		policies: policies,
		rollouts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_rollouts",
			Help: "Bindings with a rollout, by state: step, held (a step whose time has passed), paused or final. Only the leader has it.",
		}, []string{"state"}),
		overdue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_rollouts_overdue",
			Help: "Bindings whose rollout is held for longer than the time of its step. Only the leader has it.",
		}, []string{}),
	}
	registerer.MustRegister(m.rollouts, m.overdue)
	return m
}

// Run counts until ctx ends.
func (m *Metrics) Run(ctx context.Context) error {
	defer m.rollouts.Reset()
	defer m.overdue.Reset()
	tick := time.NewTicker(countInterval)
	defer tick.Stop()
	for {
		m.count(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (m *Metrics) count(now time.Time) {
	states, overdue := map[string]int{"step": 0, "held": 0, "paused": 0, "final": 0}, 0
	for _, p := range m.policies() {
		for i := range p.Status.Bindings {
			s := &p.Status.Bindings[i]
			states[stateOf(s)]++
			if s.HeldBy != "" && !s.Paused && s.Since != nil && s.Next != nil && now.Sub(s.Next.Time) > s.Next.Sub(s.Since.Time) {
				overdue++
			}
		}
	}
	for state, n := range states {
		m.rollouts.WithLabelValues(state).Set(float64(n))
	}
	m.overdue.WithLabelValues().Set(float64(overdue))
}

func stateOf(s *v1alpha1.BindingStatus) string {
	switch {
	case s.Final:
		return "final"
	case s.Paused:
		return "paused"
	case s.HeldBy != "":
		return "held"
	}
	return "step"
}
