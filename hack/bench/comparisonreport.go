package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

// manyParamsBudget is the latency that may be added by many params, in ms.
const manyParamsBudget = 50

// limit is how much Ostiary may add relative to what the native engine of the
// latest Kubernetes adds; 0 is no limit.
type limit struct{ cpu, latency float64 }

// limitOf is the limit of a pair that so many callers ask.
func limitOf(pair string, callers int) limit {
	many := callers == manyCallers
	switch set, _, _ := strings.Cut(pair, ", "); {
	case set == bench.B && many:
		return limit{cpu: 1}
	case set == bench.C && many:
		return limit{cpu: 0.25}
	case set == bench.R2 && many:
		return limit{cpu: 0.25, latency: 0.30}
	case set == bench.R2:
		return limit{cpu: 0.30, latency: 0.35}
	case (set == bench.R || set == bench.V) && many:
		return limit{cpu: 0.33, latency: 0.33}
	case set == bench.R || set == bench.V:
		return limit{latency: 0.33}
	}
	return limit{}
}

func (c *comparison) budgets() []budget {
	var out []budget
	latest := len(c.versions) - 1
	for _, callers := range c.callers {
		most := limitOf(c.pair.Name, callers)
		s, unit := seat{bench.Ostiary, callers, latest}, "× native "+c.versions[latest]
		if most.cpu > 0 {
			out = append(out, budget{
				what:  fmt.Sprintf("added CPU, set %s, %d callers", c.pair.Name, callers),
				got:   c.share(s, c.addedCPU),
				limit: most.cpu,
				unit:  unit,
			})
		}
		if most.latency > 0 {
			out = append(out, budget{
				what:  fmt.Sprintf("added p50, set %s, %d callers", c.pair.Name, callers),
				got:   c.share(s, c.added),
				limit: most.latency,
				unit:  unit,
			})
		}
	}
	if len(c.pair.Params) == manyParams {
		added := c.medianOf(seat{bench.Ostiary, fewCallers, latest}, c.added)
		out = append(out, budget{what: "added latency, " + c.pair.Name, got: micros(added) / 1000, limit: manyParamsBudget, unit: "ms"})
	}
	return out
}

func (r *report) printComparisons(out io.Writer) {
	t := table{"## Through the API server", []string{
		"policies", "decided by", "API server", "callers", "p50 ms", "p99 ms", "requests/s", "added to p50 ms", "× native",
		"API server CPU µs/request", "webhook CPU µs/request", "added CPU µs/request", "× native", "spread",
	}, nil}
	for _, c := range r.comparisons {
		for _, s := range c.seats() {
			all := c.rounds[s]
			share, shareOfCPU := "", ""
			if s.side == bench.Ostiary || s.side == bench.Webhooks {
				share, shareOfCPU = shareText(c.share(s, c.added)), shareText(c.share(s, c.addedCPU))
			}
			t.add(c.pair.Name, c.decides(s.side), c.versions[s.version], fmt.Sprint(s.callers),
				fmt.Sprintf("%.2f", micros(median(all, func(f figures) time.Duration { return f.p50 }))/1000),
				fmt.Sprintf("%.1f", micros(median(all, func(f figures) time.Duration { return f.p99 }))/1000),
				fmt.Sprintf("%.0f", medianRate(all)),
				fmt.Sprintf("%.2f", micros(c.medianOf(s, c.added))/1000), share,
				fmt.Sprintf("%.0f", micros(median(all, func(f figures) time.Duration { return f.cpu }))),
				fmt.Sprintf("%.0f", micros(median(all, func(f figures) time.Duration { return f.behind }))),
				fmt.Sprintf("%.0f", micros(c.medianOf(s, c.addedCPU))), shareOfCPU, c.spread(s))
		}
	}
	t.print(out)
}

// spread is the least and the most CPU per request of a round, relative to the median.
func (c *comparison) spread(s seat) string {
	cpu := func(f figures) time.Duration { return f.cpu + f.behind }
	middle := float64(median(c.rounds[s], cpu))
	least, most := math.Inf(1), 0.0
	for _, f := range c.rounds[s] {
		least, most = min(least, float64(cpu(f))/middle), max(most, float64(cpu(f))/middle)
	}
	return fmt.Sprintf("%.2f–%.2f", least, most)
}

// shareText is a share as the table has it.
func shareText(share float64) string {
	if math.IsInf(share, 0) {
		return "native adds nothing"
	}
	return fmt.Sprintf("%.2f", share)
}

// decides names a side.
func (c *comparison) decides(side bench.Side) string {
	switch side {
	case bench.None:
		return "no policy"
	case bench.Ostiary:
		return ostiary
	case bench.Webhooks:
		if c.pair.Webhooks == c.pair.Policies {
			return "one no-op webhook per policy"
		}
		return "one no-op webhook"
	default:
		return "native"
	}
}

func medianRate(all []figures) float64 {
	rates := make([]float64, len(all))
	for i := range all {
		rates[i] = all[i].rate
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}
