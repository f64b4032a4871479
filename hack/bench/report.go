package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

// report is all that was measured.
type report struct {
	slack    float64  // by which budgets may be exceeded without failing
	versions []string // of the API servers
	commit   string   // of the manager
	date     time.Time
	duration time.Duration // of a measurement
	flags    string        // of the command
	loads    []*loadResult
	cold     []coldStart
	enforced []enforcement
	idle     []idle

	comparisons []*comparison
	scale       *scale        // nil when not measured
	compiled    *compiledSize // nil when not measured
}

// budget is a bound of one figure.
type budget struct {
	what       string
	got, limit float64
	unit       string
}

func (b budget) met() bool { return b.got <= b.limit }

// ratioBudgets bound the CPU per request relative to the no-op, at most callers,
// for a pod that is allowed.
func ratioBudgets() map[string]float64 {
	return map[string]float64{bench.A: 0.6, bench.B: 1, bench.C: 4, bench.D: 0.8}
}

const (
	memoryBudget      = 100 // MiB, with set D
	enforcementBudget = 6 * time.Second
)

// budgets are those of what was measured.
func (r *report) budgets() []budget {
	var out []budget
	for _, l := range r.loads {
		if most := ratioBudgets()[l.set]; most > 0 {
			out = append(out, budget{
				what:  "CPU per request, set " + l.set,
				got:   l.ratio(kind{ostiary, bench.Good, maxCallers}),
				limit: most,
				unit:  "× no-op",
			})
		}
		if l.set == bench.D {
			out = append(out, budget{what: "peak memory, set D", got: l.after.peak, limit: memoryBudget, unit: "MiB"})
		}
	}
	if len(r.enforced) > 0 {
		took := median(r.enforced, func(e enforcement) time.Duration { return e.last() - e.applied })
		out = append(out, budget{
			what:  "1,000 policies enforced after the last was applied",
			got:   took.Seconds(),
			limit: enforcementBudget.Seconds(),
			unit:  "s",
		})
	}
	if len(r.cold) > 0 {
		wrong := 0
		for _, c := range r.cold {
			wrong += c.wrong()
		}
		out = append(out, budget{what: "wrong answers in all cold starts, set C", got: float64(wrong)})
	}
	for _, c := range r.comparisons {
		out = append(out, c.budgets()...)
	}
	if r.scale != nil {
		out = append(out, r.scale.budgets()...)
	}
	if r.compiled != nil {
		out = append(out,
			budget{what: "memory of a compiled policy", got: r.compiled.plain, limit: 30, unit: "KiB"},
			budget{what: "memory of a compiled policy with three variables", got: r.compiled.variables, limit: 60, unit: "KiB"})
	}
	return out
}

func (r *report) met() bool {
	return !slices.ContainsFunc(r.budgets(), func(b budget) bool { return b.got > b.limit*r.slack })
}

// ratio is the median, over the rounds, of the CPU per request relative to the
// no-op's in the same round.
func (l *loadResult) ratio(k kind) float64 {
	base := l.rounds[kind{noop, bench.Good, k.callers}]
	ratios := make([]float64, len(base))
	for i := range base {
		ratios[i] = float64(l.rounds[k][i].cpu) / float64(base[i].cpu)
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

func median[T any](all []T, of func(T) time.Duration) time.Duration {
	values := make([]time.Duration, len(all))
	for i := range all {
		values[i] = of(all[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// rounds is how often each thing was measured.
func (r *report) rounds() int {
	rounds := len(r.enforced)
	for _, l := range r.loads {
		for _, all := range l.rounds {
			rounds = len(all)
		}
	}
	for _, c := range r.comparisons {
		for _, all := range c.rounds {
			rounds = len(all)
		}
	}
	return rounds
}

// write prints the report, or makes it a page of the documents.
func (r *report) write(out io.Writer, file string) error {
	if file == "" {
		r.print(out)
		return nil
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Results\n\nThese tables are from one run of the benchmark, by `make bench BENCHFLAGS=%q`.\n[Method](method.md) explains sets and terms.\n\n", r.flags)
	r.print(&page)
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "Ostiary %s, Kubernetes %s, %d processors, %s, %s/%s, %s; medians of %d rounds of %s.\n",
		r.commit, strings.Join(r.versions, " and "), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH,
		r.date.Format(time.DateOnly), r.rounds(), r.duration)
	if len(r.loads) > 0 {
		r.printLoads(out)
		r.printMemory(out)
	}
	if len(r.enforced) > 0 {
		r.printEnforcement(out)
	}
	if len(r.cold) > 0 {
		r.printCold(out)
	}
	if len(r.idle) > 0 {
		r.printIdle(out)
	}
	if len(r.comparisons) > 0 {
		r.printComparisons(out)
	}
	if r.scale != nil {
		r.scale.print(out)
	}
	t := table{"## Budgets", []string{"budget", "at most", "measured", ""}, nil}
	for _, b := range r.budgets() {
		verdict := "met"
		if !b.met() {
			verdict = "**NOT met**"
		}
		t.add(b.what, strings.TrimSpace(fmt.Sprintf("%.3g %s", b.limit, b.unit)), fmt.Sprintf("%.2f", b.got), verdict)
	}
	t.print(out)
}

func (r *report) printLoads(out io.Writer) {
	t := table{"## Load", []string{"set", "webhook", "pod", "callers", "p50 ms", "p99 ms", "requests/s", "CPU µs/request", "× no-op"}, nil}
	for _, l := range r.loads {
		for _, k := range kinds() {
			all := l.rounds[k]
			t.add(l.set, k.server, k.pod, fmt.Sprint(k.callers),
				fmt.Sprintf("%.2f", micros(median(all, func(f figures) time.Duration { return f.p50 }))/1000),
				fmt.Sprintf("%.1f", micros(median(all, func(f figures) time.Duration { return f.p99 }))/1000),
				fmt.Sprintf("%.0f", medianRate(all)),
				fmt.Sprintf("%.0f", micros(median(all, func(f figures) time.Duration { return f.cpu }))),
				fmt.Sprintf("%.2f", l.ratio(k)))
		}
	}
	t.print(out)
}

func (r *report) printMemory(out io.Writer) {
	t := table{
		title: "## Memory, MiB",
		columns: []string{
			"set", "types checked, s after Ready", "all enforced", "after the load", "peak", "no-op after the load",
		},
	}
	for _, l := range r.loads {
		t.add(l.set, seconds(l.checked), fmt.Sprintf("%.0f", l.idle.now), fmt.Sprintf("%.0f", l.after.now),
			fmt.Sprintf("%.0f", l.after.peak), fmt.Sprintf("%.0f", l.noop.now))
	}
	t.print(out)
}

func (r *report) printEnforcement(out io.Writer) {
	t := table{
		title: "## From apply to enforced, s",
		columns: []string{
			"round", "policies", "all applied", "first probe enforced", "half of them", "last", "last, after all were applied",
			"all Ready",
		},
	}
	for i, e := range r.enforced {
		sorted := slices.Sorted(slices.Values(e.enforced))
		t.add(fmt.Sprint(i+1), fmt.Sprint(e.policies), seconds(e.applied), seconds(sorted[0]),
			seconds(sorted[len(sorted)/2]), seconds(e.last()), seconds(e.last()-e.applied), seconds(e.ready))
	}
	t.print(out)
}

func (r *report) printCold(out io.Writer) {
	t := table{
		title: "## Cold start, set C",
		columns: []string{
			"round", "ready s", "all enforced s", "wrong before ready", "wrong after", "partial", "complete", "503", "other",
			"no connection",
		},
	}
	for i, c := range r.cold {
		t.add(fmt.Sprint(i+1), seconds(c.ready), seconds(c.enforced), fmt.Sprint(c.wrongBefore), fmt.Sprint(c.wrongAfter),
			fmt.Sprint(c.partial), fmt.Sprint(c.complete), fmt.Sprint(c.unavailable), fmt.Sprint(c.failed),
			fmt.Sprint(c.noConnection))
	}
	t.print(out)
}

// table is one of Markdown.
type table struct {
	title   string
	columns []string
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(out io.Writer) {
	line := func(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }
	fmt.Fprintf(out, "\n%s\n\n%s\n%s\n", t.title, line(t.columns), "|"+strings.Repeat("---|", len(t.columns)))
	for _, row := range t.rows {
		fmt.Fprintln(out, line(row))
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
