package chaos

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

var (
	chosen  = flag.String("scenario", "", "what to run: all, ci, attack and names of scenarios, separated by commas")
	verbose = flag.Bool("verbose", false, "print progress")
	seed    = flag.Uint64("seed", 0, "of the attackers' random numbers, to repeat a run that named it; 0: any")
	older   = flag.String("older", "HEAD~20", "the revision that the scenario versions runs beside this one")
)

// size is how long a scenario goes on: a full one has the figures of the
// promise, a short one is for every change.
type size bool

const (
	short size = false
	full  size = true
)

// of picks a number.
func (s size) of(short, full int) int {
	if s {
		return full
	}
	return short
}

// scenario is one thing that goes wrong.
type scenario struct {
	name string
	// points are those of the list of scenarios that it stands for.
	points string
	// ci says that it is among those for every change.
	ci bool
	// attack says that hostile callers are what goes wrong: make attack.
	attack bool
	// etcd is what it needs of etcd.
	etcd etcd
	// flags are those of the managers, if not the usual ones.
	flags func(size) []string
	// wrongClocks says that the managers' clocks have to be settable.
	wrongClocks bool
	// run breaks things. It returns when everything is well again.
	run func(*run)
}

// etcd is a kind of it.
type etcd struct {
	members int // 0 means 1
	quota   int // bytes; 0 means etcd's own limit
}

// run is one scenario under way.
type run struct {
	*testing.T
	*world
	size size
	load *load

	limits   limits
	kills    []time.Time
	problems []string
	notes    []string
	// evidence is what a problem is about.
	evidence []string
}

// limits are what is allowed to happen; the zero value is nothing.
type limits struct {
	failed int
	// distrust says that API servers may say that they do not trust a certificate.
	distrust bool
	// unserved says that API servers may not answer.
	unserved bool
	// quiet says that there may be less load than ordinarily.
	quiet bool
	// mustFail says that the scenario shows that the harness can see failures.
	mustFail bool
}

// problem is something that must not be.
func (r *run) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// within is a problem where something took longer than it may. The short form of
// a scenario, which runs on machines that do other things as well, is content
// with four times as long.
func (r *run) within(what string, took, limit time.Duration) {
	if r.size == short {
		limit *= 4
	}
	if took > limit {
		r.problem("%s took %s, longer than %s", what, took.Round(time.Millisecond), limit)
	}
}

// note is a figure for the line.
func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// logf prints progress with -verbose.
func (r *run) logf(format string, args ...any) {
	if *verbose {
		fmt.Fprintf(os.Stderr, "%s   "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
	}
}

func TestChaos(t *testing.T) {
	if *chosen == "" {
		t.Skip("make chaos runs the scenarios")
	}
	selected, size := choose(t, *chosen)
	for _, kind := range []etcd{{}, {members: 3}, {quota: smallQuota}} {
		var these []scenario
		for _, s := range selected {
			if s.etcd == kind {
				these = append(these, s)
			}
		}
		if len(these) > 0 {
			t.Run(fmt.Sprintf("etcd %+v", kind), func(t *testing.T) { runAll(t, kind, these, size) })
		}
	}
}

// isOf reports whether a scenario has this name, for attacks also without "attack-", or is
// in the group of this name.
func (s scenario) isOf(name string) bool {
	switch name {
	case "all":
		return true
	case "attack":
		return s.attack
	case "ci":
		return s.ci
	}
	return s.name == name || s.attack && s.name == "attack-"+name
}

func choose(t *testing.T, text string) ([]scenario, size) {
	var out []scenario
	for name := range strings.SplitSeq(text, ",") {
		found := slices.DeleteFunc(scenarios(), func(s scenario) bool { return !s.isOf(name) })
		if len(found) == 0 {
			t.Fatalf("no scenario %q; there are all, ci, attack, %s", name, names(scenarios()))
		}
		out = append(out, found...)
	}
	return out, size(!testing.Short() && text != "ci")
}

func names(all []scenario) string {
	var out []string
	for _, s := range all {
		out = append(out, s.name)
	}
	return strings.Join(out, ", ")
}

func runAll(t *testing.T, etcd etcd, these []scenario, size size) {
	w, err := newWorld(t.Context(), etcd)
	must(t, err)
	t.Cleanup(w.close)
	for _, s := range these {
		if !t.Run(s.name, func(t *testing.T) { w.play(t, s, size) }) && t.Context().Err() != nil {
			return
		}
	}
}

// play runs one scenario and prints its line.
func (w *world) play(t *testing.T, s scenario, size size) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range w.all() { // a later scenario starts them anew, and logs more
				log := m.log()
				t.Logf("the log of %s ends with:\n%s", m.name, log[max(0, len(log)-8<<10):])
			}
		}
	})
	flags := usual()
	if s.flags != nil {
		flags = append(flags, s.flags(size)...)
	}
	program := w.program
	if s.wrongClocks {
		var err error
		program, err = w.buildWrongClock(t.Context())
		must(t, err)
	}
	w.reset(t, program, flags)
	w.awaitEnforced(t)
	from := w.mark()
	r := &run{T: t, world: w, size: size}
	r.load = w.newLoad(t)
	began := time.Now()
	finished := false
	defer func() {
		r.load.stop()
		if !finished {
			r.problem("it did not come to its end")
		}
		r.report(s, from, time.Since(began))
	}()
	time.Sleep(2 * time.Second)
	s.run(r)
	time.Sleep(2 * time.Second)
	finished = true
}

// report prints the line of a scenario.
func (r *run) report(s scenario, from marks, took time.Duration) {
	heard, err := r.hear(from)
	if err != nil {
		r.problem("%v", err)
		heard = &testimony{}
	}
	requests := r.load.done
	counts := map[outcome]int{}
	wronglyAllowed, wronglyDenied := 0, 0
	for _, q := range requests {
		counts[q.outcome]++
		switch {
		case q.wrong && (q.outcome == allowed || q.outcome == unmarked):
			wronglyAllowed++
		case q.wrong:
			wronglyDenied++
		}
	}
	if len(r.kills) > 0 {
		lost, within := r.lost()
		r.note("%d of them lost by %d kills, within %s", lost, len(r.kills), within.Round(time.Millisecond))
		r.limits.failed += lost
	}
	contradictions, distrust := heard.contradictions(requests), heard.distrust()
	r.weigh(counts, contradictions, distrust, took)
	if wronglyAllowed+wronglyDenied > 0 {
		r.problem("%d requests got the wrong answer", wronglyAllowed+wronglyDenied)
	}
	for _, m := range r.all() {
		if m.ended() && !m.crashed.Load() && !m.leaving.Load() {
			r.problem("%s ended by itself: %v", m.name, m.running.Err())
		}
		if log := m.log(); strings.Contains(log, "\npanic: ") || strings.Contains(log, "DATA RACE") {
			r.problem("%s panicked", m.name)
		}
	}
	verdict := "held"
	if r.limits.mustFail {
		verdict = "failures seen, as they must be"
	}
	if len(r.problems) > 0 {
		verdict = "NOT HELD: " + strings.Join(r.problems, "; ")
	}
	if n := counts[unserved]; n > 0 {
		r.note("%d without an API server", n)
	}
	r.note("p99 %s", r.load.p99().Round(time.Millisecond))
	r.note("%s", took.Round(time.Second))
	fmt.Printf("%-28s %7d requests %4d failed %3d wrongly allowed %3d wrongly denied  %s (%s)\n",
		s.name, len(requests), counts[failed], wronglyAllowed, wronglyDenied, verdict, strings.Join(r.notes, ", "))
	if len(r.problems) == 0 && !*verbose {
		return
	}
	for _, line := range slices.Concat(first(r.evidence, 20), first(r.unexplained(), 5), first(distrust, 2)) {
		fmt.Println("    " + strings.TrimSpace(line))
	}
	if len(r.problems) > 0 {
		r.Fail()
	}
}

// unexplained are the failures that no kill explains, and then the others.
func (r *run) unexplained() []string {
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	var out, rest []string
	for _, q := range r.load.done {
		_, killed := r.killed(q)
		switch {
		case q.outcome != failed && !q.wrong:
		case killed:
			rest = append(rest, q.said)
		default:
			out = append(out, q.said)
		}
	}
	slices.Reverse(out) // what fails before everything is well again is in order most of the time
	return append(out, rest...)
}

// weigh compares what happened with what may happen.
func (r *run) weigh(counts map[outcome]int, contradictions, distrust []string, took time.Duration) {
	l := r.limits
	if l.mustFail {
		if counts[failed] == 0 || len(distrust) == 0 {
			r.problem("nothing failed: the harness is blind")
		}
	} else {
		if r.size == short {
			l.failed += len(r.load.done) / 1000 // see docs/chaos/README.md
		}
		if counts[failed] > l.failed {
			r.problem("%d requests failed, at most %d may", counts[failed], l.failed)
		}
		if len(distrust) > 0 && !l.distrust {
			r.problem("API servers did not trust a certificate %d times", len(distrust))
		}
	}
	if counts[unserved] > 0 && !l.unserved {
		r.problem("%d requests were not served by any API server", counts[unserved])
	}
	if len(contradictions) > 0 {
		r.problem("the audit log contradicts %d answers: %s", len(contradictions), contradictions[0])
	}
	if want := int(took.Seconds() * rate / 2); len(r.load.done) < want && !l.quiet {
		r.problem("%d requests were sent, which is less than half of the load", len(r.load.done))
	}
}

func first(lines []string, n int) []string { return lines[:min(n, len(lines))] }

// usual are the flags of managers. API servers here are behind by less than a
// second, and rotations may follow each other that much faster.
func usual() []string { return []string{"--trust-overlap=5s"} }

// reset has three replicas with some flags run and be well.
func (w *world) reset(t *testing.T, program string, flags []string) {
	t.Helper()
	w.disturbed.Store(false)
	w.frozen.Store(false)
	w.stalls.release()
	w.mu.Lock()
	w.current, w.flags = program, flags
	w.mu.Unlock()
	for i, m := range w.all() {
		m.gateway.unset()
		m.gateway.releaseWatches()
		m.gateway.relay.release()
		w.service.Release(m.webhook)
		m.gateway.skew.Store(0)
		m.gateway.delay.Store(0)
		if i >= replicas || m.leaving.Load() {
			m.discard()
		}
	}
	for len(w.all()) < replicas {
		w.add(t)
	}
	for _, m := range w.all() {
		if !m.ended() && (m.program != program || !slices.Equal(m.flags, flags)) {
			m.kill()
			<-m.running.Done()
			w.releaseLease(t, m)
		}
		if m.ended() {
			m.start(t)
		}
	}
	w.awaitAll(t)
	w.awaitSteady(t)
}

// TestMain exists for the flags to be parsed before anything runs, and for
// clients to be silent.
func TestMain(m *testing.M) {
	if os.Getenv(floodVariable) != "" {
		os.Exit(flood())
	}
	if text := os.Getenv(attackVariable); text != "" {
		os.Exit(attackMain(text))
	}
	flag.Parse()
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
