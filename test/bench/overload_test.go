package bench_test

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ostiary/ostiary/test/bench"
	"github.com/ostiary/ostiary/webhooks"
)

// BenchmarkOverload has 256 callers at once ask about a pod with 200 policies, far more than can be answered at a time,
// with several bounds on how many are evaluated at once, and a canary beside them. It shows why the default is what it
// is: fewer do not use the processors, and with more everything that is not an evaluation gets slower, and memory grows.
func BenchmarkOverload(b *testing.B) {
	body := mustReview(b, bench.Good)
	for _, each := range []int{1, 2, 4, 8, 32, 128} {
		evaluations := each * runtime.GOMAXPROCS(0)
		b.Run(fmt.Sprintf("per-processor=%d", each), func(b *testing.B) {
			s := newService(b, bench.C, func(o *webhooks.Options) { o.MaxEvaluations, o.MaxInFlight = evaluations, 1000 })
			// Time enough that none is turned away, so that the same is done each time.
			overload(b, s, strings.Replace(s.paths[0], "timeout=5s", "timeout=30s", 1), body)
		})
	}
}

func overload(b *testing.B, s *service, path string, body []byte) {
	const callers = 256
	var left, turnedAway atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, callers)
	beside := alongside(s, body)
	b.ResetTimer()
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if response := answer(s.handler, path, body); response.StatusCode != http.StatusOK {
					turnedAway.Add(1)
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	canaries, heap := beside()
	all := slices.Concat(took...)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(millis(quantile(all, 0.5)), "p50-ms")
	b.ReportMetric(millis(quantile(all, 0.99)), "p99-ms")
	b.ReportMetric(millis(quantile(canaries, 0.99)), "canary-p99-ms")
	b.ReportMetric(float64(heap>>20), "heap-MiB")
	b.ReportMetric(float64(turnedAway.Load()), "503s")
}

// alongside sends canaries until it is stopped, and returns how long they took and how large the heap became.
func alongside(s *service, body []byte) (stop func() ([]time.Duration, uint64)) {
	var took []time.Duration
	var heap uint64
	live := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-quit:
				return
			case <-time.After(5 * time.Millisecond):
			}
			began := time.Now()
			answer(s.handler, "/canary/validate", body)
			took = append(took, time.Since(began))
			metrics.Read(live)
			heap = max(heap, live[0].Value.Uint64())
		}
	}()
	return func() ([]time.Duration, uint64) { close(quit); <-ended; return took, heap }
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.SortFunc(all, cmp.Compare[time.Duration])
	return all[int(q*float64(len(all)-1))]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
