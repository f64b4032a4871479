package audit

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ostiary/ostiary/internal/audit/results"
)

// A policy without numbers has no series, so another metric says that they are not known yet.
func TestPendingPolicies(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	m.set(results.Snapshot{Pending: map[string]results.Subject{"p": {Generation: 2}, "q": {Generation: 1}}})
	if got := testutil.ToFloat64(m.pending); got != 2 {
		t.Errorf("%v policies are pending, want 2", got)
	}
	m.reset()
	if got := testutil.ToFloat64(m.pending); got != 0 {
		t.Errorf("%v policies are pending without a scan, want 0", got)
	}
}
