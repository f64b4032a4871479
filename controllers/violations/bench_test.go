package violations

import (
	"io"
	"testing"
	"time"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/bench"
)

// BenchmarkViolations measures a request to one policy. Reports add nothing to a request that the policy allows. To one
// that it denies they add a count, and a record for the log or, while the buffer is full, a count of dropped records.
func BenchmarkViolations(b *testing.B) {
	policies, err := bench.Policies(bench.A)
	if err != nil {
		b.Fatal(err)
	}
	compiled, errs := policy.NewCompiler().Compile(policies[0])
	if len(errs) > 0 {
		b.Fatal(errs.ToAggregate())
	}
	group := policy.NewGroup([]*policy.Compiled{compiled})
	counts, reporter, full := NewCounts(), NewReporter(io.Discard, nil), NewReporter(io.Discard, nil)
	receivers := []struct {
		name     string
		violated func(policy.ViolationReport)
	}{
		{"nothing", nil},
		{"counts", counts.Add},
		{"log", func(v policy.ViolationReport) { counts.Add(v); reporter.Report(v) }},
		{"full", func(v policy.ViolationReport) { counts.Add(v); full.Report(v) }},
	}
	for _, pod := range []string{bench.Good, bench.Bad} {
		request, err := bench.Request(pod)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range receivers {
			host := policy.Environment{Now: time.Now, Violated: r.violated}
			b.Run("pod="+pod+"/report="+r.name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := group.Validate(b.Context(), request, host); err != nil {
						b.Fatal(err)
					}
					if i%slots == slots-1 { // the work of the reader is not part of a request
						b.StopTimer()
						reporter.buffer.take(slots, func(*record) {})
						b.StartTimer()
					}
				}
			})
		}
	}
}
