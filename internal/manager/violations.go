package manager

import (
	"context"
	"io"
	"os"

	clientevents "k8s.io/client-go/tools/events"

	"github.com/ostiary/ostiary/controllers/rollouts"
	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/policy"
)

// newViolationReports returns the function that gets each violation, on the path of requests, and adds what reports them.
func newViolationReports(
	p process, counts *violations.Counts, ofRollouts *rollouts.Recorder,
) (func(policy.ViolationReport), error) {
	add := func(v policy.ViolationReport) {
		counts.Add(v)
		ofRollouts.Add(v)
	}
	if len(p.options.ReportViolations) == 0 {
		return add, nil
	}
	var out io.Writer
	var events clientevents.EventRecorder
	if p.options.LogsViolations() {
		out = os.Stdout
	}
	if p.options.RecordsViolations() {
		events = p.manager.GetEventRecorder("ostiary")
	}
	reporter := violations.NewReporter(out, events)
	return func(v policy.ViolationReport) {
		add(v)
		reporter.Report(v)
	}, p.add(reporter)
}

// findings returns the violations by requests to all replicas.
func (p process) findings(ctx context.Context) ([]violations.Finding, error) {
	live, err := p.replicas.Live(ctx)
	if err != nil {
		return nil, err
	}
	return violations.Merge(live), nil
}
