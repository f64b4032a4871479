// Package metrics defines the metrics of policies.
package metrics

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/policy"
)

// maxPolicies bounds the values of the label policy. Further policies, by name,
// are counted together under otherPolicies, which is not a valid object name.
const (
	maxPolicies = 2000
	// maxValidations bounds the pairs of the labels policy and validation. Further ones,
	// by name, are counted together.
	maxValidations = 5000
	otherPolicies  = "(other)"
)

// durationBuckets range from 50 µs, about ten simple expressions, to 10 s, the
// default timeout of API servers.
func durationBuckets() []float64 {
	return []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 100e-3, 500e-3, 1, 5, 10}
}

// Policies holds the metrics of all policies. The series of a policy exist as long
// as the policy.
type Policies struct {
	requests        *prometheus.CounterVec
	duration        *prometheus.HistogramVec
	notIdempotent   *prometheus.CounterVec
	breakGlass      *prometheus.CounterVec
	panics          *prometheus.CounterVec
	compileFailures prometheus.Counter
	loaded          *prometheus.GaugeVec
	failures        *prometheus.CounterVec
	batch, alone    prometheus.Counter // evaluations, by path

	named  atomic.Pointer[map[validation]prometheus.Counter]
	series atomic.Pointer[map[string]*series]
}

// validation is a named validation of a policy.
type validation struct{ policy, name string }

// series are the metrics of one policy, found without hashing labels on each
// request.
type series struct {
	duration prometheus.Observer
	requests [5][14]atomic.Pointer[prometheus.Counter] // by operation and decision; created on first use
}

// NewPolicies creates the metrics and registers them.
func NewPolicies(registry prometheus.Registerer) *Policies {
	p := &Policies{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_policy_requests_total",
			Help: "Requests that a policy was evaluated for, by operation and decision: allow, deny, warn, audit, " +
				"ratchet (a validation is false, also for the stored object), excepted (it passed, or was not changed, because of an exception), " +
				"preview (it would have been changed), mutate, annotate (it wrote to the audit log), skip (a matchCondition was false), " +
				"suspended, unmatched (no binding applies), breakglass (the user may skip the policy) " +
				"or error (an expression failed; failurePolicy decided).",
		}, []string{"policy", "operation", "decision"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ostiary_policy_evaluation_duration_seconds",
			Help:    "Time to evaluate one policy for one request.",
			Buckets: durationBuckets(),
		}, []string{"policy"}),
		notIdempotent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_policy_not_idempotent_total",
			Help: "Objects that a policy changed again when evaluated on its own result. Each replica checks the first 10 changes of a generation, then one in 1,000.",
		}, []string{"policy"}),
		breakGlass: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_policy_breakglass_total",
			Help: "Requests that a policy would have denied or changed, but skipped because RBAC allows the user to skip it.",
		}, []string{"policy"}),
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_policy_panics_total",
			Help: "Panics in evaluations of a policy. Each counts as an error for that request.",
		}, []string{"policy"}),
		compileFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ostiary_policy_compile_failures_total",
			Help: "Generations of policies with an expression that does not compile.",
		}),
		loaded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ostiary_policies",
			Help: "Policies in this replica, by state: accepted, or refused (invalid, or the API server rejects the registration).",
		}, []string{"state"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ostiary_policy_validation_failures_total",
			Help: "Requests for which a validation with a name was false, whatever the actions of the bindings are. At most 5,000 validations have series of their own.",
		}, []string{"policy", "validation"}),
	}
	evaluations := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ostiary_policy_evaluations_total",
		Help: "Evaluations of validating policies, by path: batch (together with the other policies of the call) or " +
			"alone (with an evaluation of its own that counts costs). kubectl ostiary explain --cost shows the reasons.",
	}, []string{"path"})
	p.batch, p.alone = evaluations.WithLabelValues("batch"), evaluations.WithLabelValues("alone")
	registry.MustRegister(evaluations)
	registry.MustRegister(p.requests, p.duration, p.notIdempotent, p.breakGlass, p.panics, p.compileFailures, p.loaded, p.failures)
	p.named.Store(&map[validation]prometheus.Counter{})
	p.series.Store(&map[string]*series{})
	return p
}

// Keep creates the series of the given policies, sorted by name, and deletes all
// others.
func (p *Policies) Keep(names []string, refused int) {
	before := *p.series.Load()
	after := make(map[string]*series, len(names))
	other := before[otherPolicies]
	for i, name := range names {
		switch {
		case i >= maxPolicies:
			if other == nil {
				other = p.newSeries(otherPolicies)
			}
			after[otherPolicies] = other
		case before[name] != nil:
			after[name] = before[name]
		default:
			after[name] = p.newSeries(name)
		}
	}
	p.series.Store(&after)
	for name := range before {
		if after[name] == nil {
			p.duration.DeleteLabelValues(name)
			p.requests.DeletePartialMatch(prometheus.Labels{"policy": name})
			p.notIdempotent.DeleteLabelValues(name)
			p.panics.DeleteLabelValues(name)
			p.breakGlass.DeleteLabelValues(name)
		}
	}
	p.loaded.WithLabelValues("accepted").Set(float64(len(names) - refused))
	p.loaded.WithLabelValues("refused").Set(float64(refused))
}

// KeepValidations creates the series of the named validations of all policies, and deletes
// all others.
func (p *Policies) KeepValidations(names map[string][]string) {
	before := *p.named.Load()
	after := map[validation]prometheus.Counter{}
	for _, policy := range slices.Sorted(maps.Keys(names)) {
		for _, name := range names[policy] {
			v := validation{policy, name}
			if len(after) >= maxValidations {
				v = validation{otherPolicies, otherPolicies}
			}
			after[v] = p.failures.WithLabelValues(v.policy, v.name)
		}
	}
	p.named.Store(&after)
	for v := range before {
		if after[v] == nil {
			p.failures.DeleteLabelValues(v.policy, v.name)
		}
	}
}

// ValidationFailed counts a request that fails a named validation.
func (p *Policies) ValidationFailed(policy, name string) {
	all := *p.named.Load()
	counter := all[validation{policy, name}]
	if counter == nil {
		counter = all[validation{otherPolicies, otherPolicies}]
	}
	if counter != nil { // else deleted in the meantime
		counter.Inc()
	}
}

// newSeries initializes the count of panics to 0: Prometheus sees no increase in a
// series that begins at 1.
func (p *Policies) newSeries(name string) *series {
	p.panics.WithLabelValues(name)
	return &series{duration: p.duration.WithLabelValues(name)}
}

// CompileFailed counts a generation that does not compile.
func (p *Policies) CompileFailed() { p.compileFailures.Inc() }

// Panicked counts a panic of a policy.
func (p *Policies) Panicked(name string) { p.count(p.panics, name) }

// NotIdempotent counts a policy that changed its own result.
func (p *Policies) NotIdempotent(name string) { p.count(p.notIdempotent, name) }

func (p *Policies) count(of *prometheus.CounterVec, name string) {
	all := *p.series.Load()
	if all[name] == nil {
		name = otherPolicies
		if all[name] == nil {
			return // deleted in the meantime
		}
	}
	of.WithLabelValues(name).Inc()
}

// Evaluated counts the evaluations of the policies of one call.
func (p *Policies) Evaluated(batch, alone int) {
	p.batch.Add(float64(batch))
	p.alone.Add(float64(alone))
}

// Observe counts one policy's evaluation of one request.
func (p *Policies) Observe(name string, operation admissionv1.Operation, decision policy.Decision, elapsed time.Duration) {
	all := *p.series.Load()
	s := all[name]
	if s == nil {
		name = otherPolicies
		if s = all[name]; s == nil {
			return // deleted during the evaluation
		}
	}
	s.duration.Observe(elapsed.Seconds())
	s.counter(p.requests, name, operation, decision).Inc()
	if decision == policy.DecisionBreakGlass {
		p.breakGlass.WithLabelValues(name).Inc()
	}
}

func (s *series) counter(vec *prometheus.CounterVec, name string, operation admissionv1.Operation, decision policy.Decision) prometheus.Counter {
	slot := &s.requests[operationIndex(operation)][decisionIndex(decision)]
	if c := slot.Load(); c != nil {
		return *c
	}
	c := vec.WithLabelValues(name, operationLabel(operation), string(decision))
	slot.Store(&c)
	return c
}

// operationLabel maps unknown operations to "other", to bound the label.
func operationLabel(o admissionv1.Operation) string {
	if operationIndex(o) == 4 {
		return "other"
	}
	return string(o)
}

func operationIndex(o admissionv1.Operation) int {
	switch o {
	case admissionv1.Create:
		return 0
	case admissionv1.Update:
		return 1
	case admissionv1.Delete:
		return 2
	case admissionv1.Connect:
		return 3
	default:
		return 4
	}
}

func decisionIndex(d policy.Decision) int {
	switch d {
	case policy.DecisionAllow:
		return 0
	case policy.DecisionDeny:
		return 1
	case policy.DecisionWarn:
		return 2
	case policy.DecisionAudit:
		return 3
	case policy.DecisionSkip:
		return 4
	case policy.DecisionMutate:
		return 5
	case policy.DecisionBreakGlass:
		return 6
	case policy.DecisionAnnotate:
		return 7
	case policy.DecisionUnmatched:
		return 8
	case policy.DecisionRatchet:
		return 9
	case policy.DecisionExcepted:
		return 10
	case policy.DecisionSuspended:
		return 11
	case policy.DecisionPreview:
		return 12
	default:
		return 13
	}
}
