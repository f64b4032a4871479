package manager

import (
	"context"
	"io"
	"os"

	clientevents "k8s.io/client-go/tools/events"

	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/policy"
)

// addViolations adds what reports violations. It returns the function that gets each of them, on the path of requests.
func (r *replica) addViolations() (func(policy.ViolationReport), error) {
	r.counts = violations.NewCounts()
	if len(r.options.ReportViolations) == 0 {
		return r.counts.Add, nil
	}
	var out io.Writer
	var events clientevents.EventRecorder
	if r.options.LogsViolations() {
		out = os.Stdout
	}
	if r.options.RecordsViolations() {
		events = r.manager.GetEventRecorder("ostiary")
	}
	reporter := violations.NewReporter(out, events)
	return func(v policy.ViolationReport) {
		r.counts.Add(v)
		reporter.Report(v)
	}, r.add(reporter)
}

// findings returns the violations by requests to all replicas.
func (r *replica) findings(ctx context.Context) ([]violations.Finding, error) {
	live, err := r.replicas.Live(ctx)
	if err != nil {
		return nil, err
	}
	return violations.Merge(live), nil
}
