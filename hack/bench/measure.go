package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/test/bench"
)

// callers are how many ask at a time. The budgets are for the last.
func callers() []int { return []int{1, maxCallers} }

// kind is one kind of load: whom is asked, about which pod, by how many.
type kind struct {
	server  string
	pod     string
	callers int
}

const (
	noop    = "no-op"
	ostiary = "Ostiary"
)

// kinds of load of one round, in their order.
func kinds() []kind {
	var out []kind
	for _, c := range callers() {
		out = append(out, kind{noop, bench.Good, c}, kind{ostiary, bench.Good, c})
	}
	return append(out, kind{ostiary, bench.Bad, maxCallers})
}

// loadResult is one set under load.
type loadResult struct {
	set     string
	rounds  map[kind][]figures
	checked time.Duration // from all Ready until all types are checked
	idle    memory        // before the load
	after   memory
	noop    memory // of the no-op, after
}

// measureSet enforces a set and measures what requests cost then.
func (w *world) measureSet(ctx context.Context, set string, r *report) error {
	w.log.Printf("Set %s: starting the manager and applying the policies", set)
	policies, errPolicies := bench.Policies(set)
	params, errParams := bench.Params(set)
	if err := errors.Join(errPolicies, errParams, w.startManager(ctx)); err != nil {
		return err
	}
	if err := errors.Join(w.createParams(ctx, params), w.apply(ctx, policies)); err != nil {
		return err
	}
	if err := w.awaitReady(ctx, len(policies)); err != nil {
		return err
	}
	// The checks of types go on in the background, and take a processor while they do.
	start := time.Now()
	if err := w.awaitChecked(ctx); err != nil {
		return err
	}
	checked := time.Since(start)
	t, err := w.target(ctx)
	if err != nil {
		return err
	}
	result, err := w.underLoad(ctx, set, t)
	if err != nil {
		return err
	}
	result.checked = checked
	r.loads = append(r.loads, result)
	if set == bench.C {
		if r.cold, err = w.measureColdStarts(ctx, t); err != nil {
			return err
		}
		// The lease of the last one that was killed still stands.
		if err := w.startManager(ctx); err != nil {
			return err
		}
	}
	return w.clear(ctx)
}

func (w *world) underLoad(ctx context.Context, set string, t target) (*loadResult, error) {
	result := &loadResult{set: set, rounds: map[kind][]figures{}}
	var err error
	if result.idle, err = memoryOf(w.manager.PID()); err != nil {
		return nil, err
	}
	for round := range w.options.rounds {
		for _, k := range kinds() {
			f, err := w.loadOf(ctx, k, t)
			if err != nil {
				return nil, fmt.Errorf("%s, pod %s, %d callers: %w", k.server, k.pod, k.callers, err)
			}
			w.log.Printf("Set %s, round %d of %d: %s, pod %s, %d callers: %.0f requests/s, %.0f µs CPU a request",
				set, round+1, w.options.rounds, k.server, k.pod, k.callers, f.rate, micros(f.cpu))
			result.rounds[k] = append(result.rounds[k], f)
		}
	}
	if result.after, err = memoryOf(w.manager.PID()); err != nil {
		return nil, err
	}
	result.noop, err = memoryOf(w.noop.running.PID())
	return result, err
}

func (w *world) loadOf(ctx context.Context, k kind, t target) (figures, error) {
	pid := w.manager.PID()
	if k.server == noop {
		t, pid = w.noop.target, w.noop.running.PID()
	}
	body, err := bench.Review(k.pod)
	if err != nil {
		return figures{}, err
	}
	defer t.client.CloseIdleConnections()
	want, err := t.ask(ctx, body, 0)
	if err != nil || want.allowed != (k.pod == bench.Good) {
		return figures{}, fmt.Errorf("wrong answer: got %+v: %w", want, err)
	}
	l := load{target: t, body: body, want: want, callers: k.callers, duration: w.options.duration}
	return l.measure(ctx, pid)
}

const (
	// probes are spread over the set, with its first and its last policy.
	probes     = 10
	probeEvery = 20 * time.Millisecond
)

// enforcement is how long it takes until policies are enforced.
type enforcement struct {
	policies int
	applied  time.Duration   // from the first apply sent to the last answered
	enforced []time.Duration // from the first apply sent, by probe
	ready    time.Duration   // likewise, until every policy says that it is Ready
}

// measureEnforcement applies a thousand policies at once, and asks the API server
// by dry runs when the first of the probes, the last and those between are enforced.
func (w *world) measureEnforcement(ctx context.Context) ([]enforcement, error) {
	var out []enforcement
	for round := range w.options.rounds {
		if err := w.startManager(ctx); err != nil {
			return nil, err
		}
		e, err := w.enforce(ctx)
		if err != nil {
			return nil, err
		}
		w.log.Printf("Set %s, round %d of %d: %d policies applied in %s, the last enforced %s later",
			bench.Probes, round+1, w.options.rounds, e.policies, seconds(e.applied), seconds(e.last()-e.applied))
		out = append(out, e)
		if err := w.clear(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (w *world) enforce(ctx context.Context) (enforcement, error) {
	policies, err := bench.Policies(bench.Probes)
	if err != nil {
		return enforcement{}, err
	}
	e := enforcement{policies: len(policies), enforced: make([]time.Duration, probes)}
	start := time.Now()
	applied := make(chan error, 1)
	go func() {
		err := w.apply(ctx, policies)
		e.applied = time.Since(start)
		applied <- err
	}()
	err = w.await(ctx, probeEvery, "every probe is refused", func() (bool, error) {
		left := false
		for i := range e.enforced {
			if e.enforced[i] != 0 {
				continue
			}
			refused, err := w.probe(ctx, i*(len(policies)-1)/(probes-1))
			if err != nil {
				return false, err
			}
			if refused {
				e.enforced[i] = time.Since(start)
			}
			left = left || !refused
		}
		return !left, nil
	})
	if applyErr := <-applied; applyErr != nil {
		return e, applyErr
	}
	if err == nil {
		err = w.awaitReady(ctx, len(policies))
		e.ready = time.Since(start)
	}
	return e, err
}

// last is when the last probe was enforced.
func (e enforcement) last() time.Duration {
	var last time.Duration
	for _, d := range e.enforced {
		last = max(last, d)
	}
	return last
}

// probe reports whether the API server refuses, with the message of policy i, a
// pod that no other policy refuses.
func (w *world) probe(ctx context.Context, i int) (bool, error) {
	object, err := bench.Pod(bench.Good, map[string]string{bench.ProbeLabel: fmt.Sprintf("p%d", i)})
	if err != nil {
		return false, err
	}
	pod := &unstructured.Unstructured{Object: object}
	pod.SetNamespace(benchNamespace)
	pod.SetName(fmt.Sprintf("probe-%d", i))
	err = w.client.Create(ctx, pod, client.DryRunAll)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return strings.Contains(err.Error(), fmt.Sprintf("'probe-%d'", i)), nil
	}
	return false, err
}
