package exceptions

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metrics returns those of every replica.
func (s *Store) metrics() []prometheus.Collector {
	locked := func(read func() float64) func() float64 {
		return func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return read()
		}
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ostiary_exceptions_in_effect",
			Help: "1 if this replica applies exceptions. 0 if the ValidatingAdmissionPolicy that checks who may write them is missing or " +
				"changed, or if the API server has not confirmed them for 30 s.",
		}, func() float64 {
			if s.inEffect() {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ostiary_exceptions_left_out",
			Help: "Exceptions that this replica does not keep, because the older ones of their namespace, or all together, use the memory for them.",
		}, locked(func() (n float64) {
			for _, sp := range s.spaces {
				n += float64(sp.out)
			}
			return n
		})),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ostiary_exceptions_bytes",
			Help: "Estimated memory of the exceptions on this replica.",
		}, locked(func() float64 { return float64(s.used) })),
	}
}

// totals are the metrics of the leader.
type totals struct {
	exceptions             *prometheus.GaugeVec
	endingSoon, withoutEnd *prometheus.GaugeVec // without labels, so that a former leader has no values
}

// totalCounts are the values of totals.
type totalCounts struct{ active, inactive, endingSoon, withoutEnd int }

func newTotals(registerer prometheus.Registerer) *totals {
	t := &totals{
		exceptions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_exceptions",
			Help: "Exceptions, by state: active (every replica applies it) or inactive. Only the leader has it.",
		}, []string{"state"}),
		endingSoon: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_exceptions_ending_soon",
			Help: "Active exceptions that were to last for more than a day and end within a day. Only the leader has it.",
		}, []string{}),
		withoutEnd: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_exceptions_without_end",
			Help: "Active exceptions that have no end. Only the leader has it.",
		}, []string{}),
	}
	if registerer != nil {
		registerer.MustRegister(t.exceptions, t.endingSoon, t.withoutEnd)
	}
	return t
}

func (t *totals) set(c totalCounts) {
	t.exceptions.WithLabelValues("active").Set(float64(c.active))
	t.exceptions.WithLabelValues("inactive").Set(float64(c.inactive))
	t.endingSoon.WithLabelValues().Set(float64(c.endingSoon))
	t.withoutEnd.WithLabelValues().Set(float64(c.withoutEnd))
}

func (t *totals) reset() {
	for _, g := range []*prometheus.GaugeVec{t.exceptions, t.endingSoon, t.withoutEnd} {
		g.Reset()
	}
}

func (c *totalCounts) add(at *conditions, s *status) {
	if s.active != metav1.ConditionTrue {
		c.inactive++
		return
	}
	c.active++
	switch {
	case s.Expires.Equal(time.Time{}):
		c.withoutEnd++
	case at.endsSoon(s.record):
		c.endingSoon++
	}
}
