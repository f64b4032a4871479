package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

// shareTargets are what Ostiary is to add of the latency that the native engine
// adds. Never may it be more than that engine's.
func shareTargets() map[string]float64 { return map[string]float64{bench.B: 1.0 / 3, bench.C: 0.1} }

// manyParamsBudget is the latency that may be added by many params, in ms.
const manyParamsBudget = 50

func (c *comparison) budgets() []budget {
	var out []budget
	if target := shareTargets()[c.pair.Name]; target > 0 {
		for _, callers := range c.callers {
			what := fmt.Sprintf("added latency, set %s, %d callers", c.pair.Name, callers)
			share := c.share(seat{bench.Ostiary, callers})
			out = append(out,
				budget{what: what, got: share, limit: 1, unit: "× native"},
				budget{what: what, got: share, limit: target, unit: "× native", target: true})
		}
	}
	if len(c.pair.Params) == manyParams {
		added := c.medianAdded(seat{bench.Ostiary, fewCallers})
		out = append(out, budget{what: "added latency, " + c.pair.Name, got: micros(added) / 1000, limit: manyParamsBudget, unit: "ms"})
	}
	return out
}

func (r *report) printComparisons(out io.Writer) {
	t := table{"### Through one API server", []string{
		"policies", "decided by", "callers", "p50 ms", "p99 ms", "requests/s", "added to p50 ms", "× native",
		"API server CPU µs/request", "webhook CPU µs/request", "added CPU µs/request",
	}, nil}
	for _, c := range r.comparisons {
		for _, callers := range c.callers {
			none := c.cpu(seat{bench.None, callers})
			for _, side := range c.pair.Sides() {
				s := seat{side, callers}
				all := c.rounds[s]
				share := ""
				if side == bench.Ostiary || side == bench.Webhooks {
					share = shareText(c.share(s))
				}
				t.add(c.pair.Name, names()[side], fmt.Sprint(callers),
					fmt.Sprintf("%.2f", micros(median(all, func(f figures) time.Duration { return f.p50 }))/1000),
					fmt.Sprintf("%.1f", micros(median(all, func(f figures) time.Duration { return f.p99 }))/1000),
					fmt.Sprintf("%.0f", medianRate(all)),
					fmt.Sprintf("%.2f", micros(c.medianAdded(s))/1000), share,
					fmt.Sprintf("%.0f", micros(median(all, func(f figures) time.Duration { return f.cpu }))),
					fmt.Sprintf("%.0f", micros(median(all, func(f figures) time.Duration { return f.behind }))),
					fmt.Sprintf("%.0f", micros(c.cpu(s)-none)))
			}
		}
	}
	t.print(out)
}

// shareText is a share as the table has it.
func shareText(share float64) string {
	if math.IsInf(share, 0) {
		return "native adds nothing"
	}
	return fmt.Sprintf("%.2f", share)
}

// cpu is what both processes spend on a request of a side.
func (c *comparison) cpu(s seat) time.Duration {
	return median(c.rounds[s], func(f figures) time.Duration { return f.cpu + f.behind })
}

func names() map[bench.Side]string {
	return map[bench.Side]string{bench.None: "nobody", bench.Native: "native", bench.Ostiary: ostiary, bench.Webhooks: "a no-op webhook each"}
}

func medianRate(all []figures) float64 {
	rates := make([]float64, len(all))
	for i := range all {
		rates[i] = all[i].rate
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}
