package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/policy"
)

func TestObserve(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := NewPolicies(registry)
	p.Keep([]string{"a", "b"}, 1)
	p.Observe("a", admissionv1.Create, policy.DecisionDeny, time.Millisecond)
	p.Observe("a", admissionv1.Create, policy.DecisionDeny, time.Millisecond)
	p.Observe("b", "SOMETHING", policy.DecisionAllow, time.Millisecond)
	p.Observe("gone", admissionv1.Create, policy.DecisionAllow, time.Millisecond)

	want := `
# HELP ostiary_policy_requests_total Requests that a policy was evaluated for, by operation and decision: allow, deny, warn, audit, ratchet (a validation is false, also for the stored object), excepted (it passed, or was not changed, because of an exception), preview (it would have been changed), mutate, annotate (it wrote to the audit log), skip (a matchCondition was false), suspended, unmatched (no binding applies), breakglass (the user may skip the policy) or error (an expression failed; failurePolicy decided).
# TYPE ostiary_policy_requests_total counter
ostiary_policy_requests_total{decision="deny",operation="CREATE",policy="a"} 2
ostiary_policy_requests_total{decision="allow",operation="other",policy="b"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "ostiary_policy_requests_total"); err != nil {
		t.Error(err)
	}
	p.Observe("a", admissionv1.Update, policy.DecisionBreakGlass, time.Millisecond)
	if got := testutil.ToFloat64(p.breakGlass.WithLabelValues("a")); got != 1 {
		t.Errorf("broken glass was counted %v times, want 1", got)
	}
	p.Keep([]string{"b"}, 0)
	if got := testutil.CollectAndCount(p.breakGlass); got != 0 {
		t.Errorf("after a policy is gone %d series of broken glass are left, want none", got)
	}
	if got := testutil.CollectAndCount(p.requests); got != 1 {
		t.Errorf("after a policy is gone %d request series are left, want 1", got)
	}
	if got := testutil.CollectAndCount(p.duration); got != 1 {
		t.Errorf("after a policy is gone %d duration series are left, want 1", got)
	}
}

func TestEvaluated(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := NewPolicies(registry)
	p.Evaluated(3, 0)
	p.Evaluated(2, 1)
	const name = "ostiary_policy_evaluations_total"
	for path, want := range map[string]float64{"batch": 5, "alone": 1} {
		counter := map[string]prometheus.Counter{"batch": p.batch, "alone": p.alone}[path]
		if got := testutil.ToFloat64(counter); got != want {
			t.Errorf("%v evaluations with the path %s, want %v", got, path, want)
		}
	}
	if got, err := testutil.GatherAndCount(registry, name); got != 2 || err != nil {
		t.Errorf("%d series of %s, want 2: %v", got, name, err)
	}
}

func TestLabelIsBounded(t *testing.T) {
	p := NewPolicies(prometheus.NewRegistry())
	names := make([]string, maxPolicies+50)
	for i := range names {
		names[i] = fmt.Sprintf("p%05d", i)
	}
	p.Keep(names, 0)
	for _, name := range names {
		p.Observe(name, admissionv1.Create, policy.DecisionAllow, time.Millisecond)
	}
	if got, want := testutil.CollectAndCount(p.requests), maxPolicies+1; got != want {
		t.Errorf("%d series, want %d", got, want)
	}
	if got := testutil.ToFloat64(p.requests.WithLabelValues(otherPolicies, "CREATE", "allow")); got != 50 {
		t.Errorf("policies beyond the bound were counted %v times together, want 50", got)
	}
}

func TestEveryDecisionHasItsOwnSeries(t *testing.T) {
	seen := map[int]policy.Decision{}
	for _, d := range policy.Decisions() {
		if other, ok := seen[decisionIndex(d)]; ok {
			t.Errorf("decisions %q and %q share a series", d, other)
		}
		seen[decisionIndex(d)] = d
	}
}

// TestPanics: the series of a policy begins at 0, and ends with the policy.
func TestPanics(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := NewPolicies(registry)
	p.Keep([]string{"a", "b", "c"}, 0)
	p.Panicked("a")
	p.Panicked("a")
	p.Panicked("c")
	p.Panicked("gone")
	p.Keep([]string{"a", "b"}, 0)
	const want = `
# HELP ostiary_policy_panics_total Panics in evaluations of a policy. Each counts as an error for that request.
# TYPE ostiary_policy_panics_total counter
ostiary_policy_panics_total{policy="a"} 2
ostiary_policy_panics_total{policy="b"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "ostiary_policy_panics_total"); err != nil {
		t.Error(err)
	}
}

func TestNotIdempotent(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := NewPolicies(registry)
	p.Keep([]string{"a", "b"}, 0)
	p.NotIdempotent("a")
	p.NotIdempotent("a")
	p.NotIdempotent("gone")
	want := `
# HELP ostiary_policy_not_idempotent_total Objects that a policy changed again when evaluated on its own result. Each replica checks the first 10 changes of a generation, then one in 1,000.
# TYPE ostiary_policy_not_idempotent_total counter
ostiary_policy_not_idempotent_total{policy="a"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "ostiary_policy_not_idempotent_total"); err != nil {
		t.Error(err)
	}
	p.Keep([]string{"b"}, 0)
	if got := testutil.CollectAndCount(p.notIdempotent); got != 0 {
		t.Errorf("after a policy is gone %d series are left", got)
	}
}

func TestValidationFailures(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := NewPolicies(registry)
	p.KeepValidations(map[string][]string{"a": {"x", "y"}, "b": {"x"}})
	p.ValidationFailed("a", "x")
	p.ValidationFailed("a", "x")
	p.ValidationFailed("a", "gone")
	p.KeepValidations(map[string][]string{"a": {"x", "z"}})
	p.ValidationFailed("b", "x")
	want := `
# HELP ostiary_policy_validation_failures_total Requests for which a validation with a name was false, whatever the actions of the bindings are. At most 5,000 validations have series of their own.
# TYPE ostiary_policy_validation_failures_total counter
ostiary_policy_validation_failures_total{policy="a",validation="x"} 2
ostiary_policy_validation_failures_total{policy="a",validation="z"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "ostiary_policy_validation_failures_total"); err != nil {
		t.Error(err)
	}
}

func TestValidationFailuresAreBounded(t *testing.T) {
	p := NewPolicies(prometheus.NewRegistry())
	named := map[string][]string{}
	for i := range maxValidations/100 + 2 {
		for j := range 100 {
			policy := fmt.Sprintf("p%05d", i)
			named[policy] = append(named[policy], fmt.Sprintf("v%03d", j))
		}
	}
	p.KeepValidations(named)
	for policy, names := range named {
		for _, name := range names {
			p.ValidationFailed(policy, name)
		}
	}
	if got, want := testutil.CollectAndCount(p.failures), maxValidations+1; got != want {
		t.Errorf("%d series, want %d", got, want)
	}
	if got := testutil.ToFloat64(p.failures.WithLabelValues(otherPolicies, otherPolicies)); got != 200 {
		t.Errorf("%v failures of further validations, want 200", got)
	}
}
