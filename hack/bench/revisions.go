package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

// revision is one of two managers that are compared.
type revision struct{ name, program string }

// inTurn returns both revisions in the order of a round. It alternates, so that what
// changes slowly, such as the load of the machine, favors neither.
func inTurn(round int, base, head revision) []revision {
	if round%2 == 1 {
		return []revision{head, base}
	}
	return []revision{base, head}
}

// measureRevisions measures the CPU per request of the manager of this revision and of
// the base in turn, with the policies of a set, and writes a line for each round and
// revision in the format of Go benchmarks. Each round has new processes: how a process
// lies in memory, and when it collects garbage, changes its CPU by some percent, for as
// long as it runs.
func (w *world) measureRevisions(ctx context.Context, set string, out io.Writer) error {
	w.log.Printf("Set %s: starting the manager and applying the policies", set)
	policies, err := bench.Policies(set)
	if err != nil {
		return err
	}
	base, head := revision{"base", w.options.base}, revision{"head", w.options.manager}
	if err := w.startManager(ctx); err != nil {
		return err
	}
	if err := w.apply(ctx, policies); err != nil {
		return err
	}
	for round := range w.options.rounds {
		for _, r := range inTurn(round, base, head) {
			f, err := w.measureRevision(ctx, r, len(policies))
			if err != nil {
				return fmt.Errorf("revision %s: %w", r.name, err)
			}
			w.log.Printf("Set %s, round %d of %d, %s: %.1f µs CPU a request", set, round+1, w.options.rounds, r.name, micros(f.cpu))
			if _, err := io.WriteString(out, benchmarkLine(r.name, set, f)); err != nil {
				return fmt.Errorf("writing a result: %w", err)
			}
		}
	}
	return w.clear(ctx)
}

// benchmarkLine is one result in the format of Go benchmarks (golang.org/design/14313-benchmark-format),
// after a line of configuration that says whose it is.
func benchmarkLine(revision, set string, f figures) string {
	return fmt.Sprintf("revision: %s\nBenchmarkRequest/set=%s %d %d ns/op\n", revision, set, f.requests, f.cpu.Nanoseconds())
}

func (w *world) measureRevision(ctx context.Context, r revision, policies int) (figures, error) {
	w.options.manager = r.program
	if err := w.startManager(ctx); err != nil {
		return figures{}, err
	}
	if err := errors.Join(w.awaitReady(ctx, policies), w.awaitChecked(ctx), w.awaitRest(ctx)); err != nil {
		return figures{}, err
	}
	t, err := w.target(ctx)
	if err != nil {
		return figures{}, err
	}
	return w.loadOf(ctx, kind{ostiary, bench.Good, maxCallers}, t)
}

// awaitRest waits until the manager has nothing left to do after its start: until it
// uses less than a twentieth of a processor.
func (w *world) awaitRest(ctx context.Context) error {
	const period = time.Second
	before := -period // the first look is no comparison
	return w.await(ctx, period, "the manager is at rest", func() (bool, error) {
		now, err := cpuTime(w.manager.PID())
		used := now - before
		before = now
		return used < period/20, err
	})
}

// compareRevisions measures each set with both revisions, and nothing else.
func compareRevisions(ctx context.Context, o options, out io.Writer) (err error) {
	o.compare = nil
	w, err := newWorld(ctx, o, log.New(os.Stderr, "", log.Ltime))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, set := range o.sets {
		if err := w.measureRevisions(ctx, set, out); err != nil {
			return fmt.Errorf("comparing with set %s: %w", set, err)
		}
	}
	return nil
}
