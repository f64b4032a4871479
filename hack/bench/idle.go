package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

const (
	idleGroups = 10
	// idleSettle is how long a manager is left alone before it is watched.
	idleSettle = 30 * time.Second
)

// idle is what a manager takes while it holds policies without requests.
// It leads, which costs more than to follow.
type idle struct {
	policies int
	cpu      float64 // thousandths of a processor
	memory   memory
}

// measureIdle watches a new manager for each number of policies.
func (w *world) measureIdle(ctx context.Context) ([]idle, error) {
	var out []idle
	for _, count := range []int{0, 100, 1000} {
		i, err := w.idleWith(ctx, count)
		if err != nil {
			return nil, fmt.Errorf("at rest with %d policies: %w", count, err)
		}
		w.log.Printf("At rest with %d policies: %.1f thousandths of a processor, %.0f MiB", count, i.cpu, i.memory.now)
		out = append(out, i)
		if err := w.clear(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (w *world) idleWith(ctx context.Context, count int) (idle, error) {
	if err := w.startManager(ctx); err != nil {
		return idle{}, err
	}
	if err := w.apply(ctx, bench.Many(count, idleGroups, scaleNamespace)); err != nil {
		return idle{}, err
	}
	if err := errors.Join(w.awaitReady(ctx, count), w.awaitChecked(ctx), sleep(ctx, idleSettle)); err != nil {
		return idle{}, err
	}
	before, err := cpuTime(w.manager.PID())
	if err != nil {
		return idle{}, err
	}
	start := time.Now()
	if err := sleep(ctx, w.options.idle); err != nil {
		return idle{}, err
	}
	after, errCPU := cpuTime(w.manager.PID())
	held, errMemory := memoryOf(w.manager.PID())
	return idle{policies: count, cpu: 1000 * float64(after-before) / float64(time.Since(start)), memory: held}, errors.Join(errCPU, errMemory)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (r *report) printIdle(out io.Writer) {
	t := table{"## At rest", []string{"policies", "CPU, thousandths of a processor", "memory, MiB", "peak, MiB"}, nil}
	for _, i := range r.idle {
		t.add(fmt.Sprint(i.policies), fmt.Sprintf("%.1f", i.cpu), fmt.Sprintf("%.0f", i.memory.now), fmt.Sprintf("%.0f", i.memory.peak))
	}
	t.print(out)
}
