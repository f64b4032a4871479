package params

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/cachebudget"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	// maxLists is the number of concurrent lists, each of which holds one object.
	maxLists = 4
	// maxTree limits the decoded size of one object in bytes.
	maxTree = 24 << 20
	// entryCost is the memory of the maps that find an object.
	entryCost = 256
)

// Memory bounds what all stores keep, and what they hold while they read objects.
type Memory struct {
	budget   *cachebudget.Budget
	lists    chan struct{}
	decoding sync.Mutex // one object is decoded at a time
	trees    *unstructuredjson.Memory

	retryInterval time.Duration
}

// NewMemory returns a Memory with a budget. registerer registers a metric of its use; nil
// disables it.
func NewMemory(budget *cachebudget.Budget, registerer prometheus.Registerer) *Memory {
	if registerer != nil {
		registerer.MustRegister(usage{budget})
	}
	return &Memory{
		budget:        budget,
		lists:         make(chan struct{}, maxLists),
		trees:         unstructuredjson.NewMemory(maxTree),
		retryInterval: excludedInterval,
	}
}

// item is an object that a store keeps, or one that is deleted.
type item struct {
	*unstructured.Unstructured
	size     int64
	tooLarge bool // only the identity is decoded
}

// decode decodes the parts of an object.
func (m *Memory) decode(raw []byte, parts unstructuredjson.Selection, gvk schema.GroupVersionKind) (*item, error) {
	m.decoding.Lock()
	defer m.decoding.Unlock()
	account := m.trees.Open()
	defer account.Close()
	tree, err := account.DecodeParts(raw, parts)
	tooLarge := isTooLarge(err)
	if tooLarge {
		tree, err = unstructuredjson.DecodeParts(raw, identityParts())
	}
	if err != nil {
		return nil, err
	}
	o := &item{tooLarge: tooLarge}
	tree, o.size = unstructuredjson.Retain(tree)
	o.size += entryCost
	if tooLarge {
		o.size = maxTree
	}
	o.Unstructured = &unstructured.Unstructured{Object: tree}
	if tree["kind"] == nil { // as in lists of built-in kinds
		o.SetGroupVersionKind(gvk)
	}
	return o, nil
}

func identityParts() unstructuredjson.Selection {
	path := unstructuredjson.Path
	return path("metadata", "name").Union(path("metadata", "namespace")).Union(path("metadata", "resourceVersion"))
}

// usage is the metric of the bytes in use.
type usage struct{ budget *cachebudget.Budget }

// Describe implements prometheus.Collector.
func (u usage) Describe(out chan<- *prometheus.Desc) { out <- usageDesc() }

// Collect implements prometheus.Collector.
func (u usage) Collect(out chan<- prometheus.Metric) {
	for name, bytes := range u.budget.Used() {
		out <- prometheus.MustNewConstMetric(usageDesc(), prometheus.GaugeValue, float64(bytes), name)
	}
}

func usageDesc() *prometheus.Desc {
	return prometheus.NewDesc("ostiary_cache_bytes",
		"Estimated memory of cached objects that count in --max-cache-memory, by cache: params, native-params (of the "+
			"audit) or plugin-objects.", []string{"cache"}, nil)
}
