package lookups

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// metrics describe the lookups of a store.
type metrics struct{ store *Store }

func ageDesc() *prometheus.Desc {
	return prometheus.NewDesc("ostiary_lookup_age_seconds",
		"Time for which changes may be missing in the lookups of a resource. Above --lookup-max-age, requests that read them are errors. "+
			"Absent before the first list.",
		[]string{"resource"}, nil)
}

func keysDesc() *prometheus.Desc {
	return prometheus.NewDesc("ostiary_lookup_keys", "Keys of objects that the lookups of a resource keep.", []string{"resource"}, nil)
}

func bytesDesc() *prometheus.Desc {
	return prometheus.NewDesc("ostiary_lookup_bytes", "Estimated memory of all lookups, of at most --lookup-memory.", nil, nil)
}

func unreadyDesc() *prometheus.Desc {
	return prometheus.NewDesc("ostiary_lookups_unready", "Lookups on this replica that are errors for some requests or all.", nil, nil)
}

// Describe implements prometheus.Collector.
func (metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ageDesc(), keysDesc(), bytesDesc(), unreadyDesc()} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m metrics) Collect(out chan<- prometheus.Metric) {
	keys, ages, unready := map[schema.GroupVersionResource]int64{}, map[schema.GroupVersionResource]float64{}, 0
	for d, x := range *m.store.indexes.Load() {
		resource := d.GroupVersionResource()
		keys[resource] += x.data.Stats().Pairs
		if !x.feed.follower.AsOf().IsZero() { // otherwise it is not known
			ages[resource] = max(ages[resource], x.age().Seconds())
		}
		if state := m.store.State(d); state.Problem != "" || state.Loading {
			unready++
		}
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for resource := range maps.Keys(keys) {
		name := resource.Resource + "." + resource.Version + "." + resource.Group
		if age, isKnown := ages[resource]; isKnown {
			gauge(ageDesc(), age, name)
		}
		gauge(keysDesc(), float64(keys[resource]), name)
	}
	gauge(bytesDesc(), float64(m.store.budget.Used()["lookups"]))
	gauge(unreadyDesc(), float64(unready))
}
