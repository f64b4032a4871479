package backends

import (
	"github.com/prometheus/client_golang/prometheus"
)

// states counts backends by state.
type states struct {
	store     *Store
	reachable *prometheus.Desc
	ca        *prometheus.Desc
}

func (s *Store) register() {
	s.options.Registerer.MustRegister(&states{
		store: s,
		reachable: prometheus.NewDesc("ostiary_backends",
			"Policies with a backend, by the result of the last TLS handshake: reachable, unreachable or unknown. Reported by the leader.",
			[]string{"state"}, nil),
		ca: prometheus.NewDesc("ostiary_backend_ca_problems",
			"Policies with a backend whose CA bundle or certificate is missing or invalid, by reason: NotFound, Forbidden, Refused or Failed. Reported by the leader.",
			[]string{"reason"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *states) Describe(out chan<- *prometheus.Desc) {
	out <- c.reachable
	out <- c.ca
}

// Collect implements prometheus.Collector.
func (c *states) Collect(out chan<- prometheus.Metric) {
	reachable := map[string]int{"reachable": 0, "unreachable": 0, "unknown": 0}
	problems := map[string]int{ReasonCANotFound: 0, ReasonCAForbidden: 0, ReasonCARefused: 0, ReasonCAFailed: 0}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.store.leading == nil {
		return
	}
	for _, b := range c.store.backends {
		switch {
		case !b.reach.known:
			reachable["unknown"]++
		case b.reach.ok:
			reachable["reachable"]++
		default:
			reachable["unreachable"]++
		}
		if _, is := problems[b.now.reason]; is {
			problems[b.now.reason]++
		}
	}
	for state, n := range reachable {
		out <- prometheus.MustNewConstMetric(c.reachable, prometheus.GaugeValue, float64(n), state)
	}
	for reason, n := range problems {
		out <- prometheus.MustNewConstMetric(c.ca, prometheus.GaugeValue, float64(n), reason)
	}
}
