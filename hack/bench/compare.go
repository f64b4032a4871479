package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/test/bench"
	"github.com/ostiary/ostiary/test/controlplane"
)

// Comparisons of the engine in the API server with Ostiary.
const (
	comparesSets      = "sets"
	comparesParams    = "params"
	comparesMutations = "mutations"
	comparesMatching  = "matching"
)

func comparisons() []string {
	return []string{comparesSets, comparesParams, comparesMutations, comparesMatching}
}

const (
	// fewCallers leave the processors to the servers; manyCallers do not.
	fewCallers, manyCallers = 1, 8
	paramsNamespace         = "bench-params"
	manyParams              = 1024
)

// pairCase is a pair, and by how many callers it is measured.
type pairCase struct {
	pair    *bench.Pair
	callers []int
}

// pairs are what one comparison measures.
func pairs(comparison string) ([]pairCase, error) {
	switch comparison {
	case comparesSets:
		b, errB := bench.PairOf(bench.B)
		c, errC := bench.PairOf(bench.C)
		both := []int{fewCallers, manyCallers}
		return []pairCase{{b, both}, {c, both}}, errors.Join(errB, errC)
	case comparesParams:
		few := []int{fewCallers}
		return []pairCase{
			{bench.ParamsPair(64, paramsNamespace), few}, {bench.ParamsPair(manyParams, paramsNamespace), few},
			{bench.BindingsPair(64, paramsNamespace), few}, {bench.BindingsPair(manyParams, paramsNamespace), few},
		}, nil
	case comparesMatching:
		var out []pairCase
		for _, count := range []int{1, 20, 100} {
			out = append(out, pairCase{bench.MatchingPair(count), []int{fewCallers, manyCallers}})
		}
		return out, nil
	default:
		var out []pairCase
		for _, count := range []int{1, 5, 20} {
			out = append(out, pairCase{bench.MutationsPair(count, admissionregistrationv1.PatchTypeApplyConfiguration), []int{fewCallers}})
		}
		return append(out, pairCase{bench.MutationsPair(1, admissionregistrationv1.PatchTypeJSONPatch), []int{fewCallers}}), nil
	}
}

// seat is one side, asked by so many callers.
type seat struct {
	side    bench.Side
	callers int
}

// comparison is what creating a pod through the API server costs on each side.
type comparison struct {
	pair    *bench.Pair
	callers []int
	rounds  map[seat][]figures
}

// added is by how much a side's median latency exceeds that of no policies, in
// the same round.
func (c *comparison) added(s seat, round int) time.Duration {
	return c.rounds[s][round].p50 - c.rounds[seat{bench.None, s.callers}][round].p50
}

func (c *comparison) medianAdded(s seat) time.Duration {
	rounds := make([]int, len(c.rounds[s]))
	for i := range rounds {
		rounds[i] = i
	}
	return median(rounds, func(round int) time.Duration { return c.added(s, round) })
}

// share is the latency that a side adds relative to what the native engine
// adds: the median of the rounds. Where that engine adds nothing, as on a machine
// that does much else, no share is small enough.
func (c *comparison) share(s seat) float64 {
	var out []float64
	for round := range c.rounds[s] {
		ours, native := c.added(s, round), c.added(seat{bench.Native, s.callers}, round)
		if native <= 0 {
			out = append(out, math.Inf(1))
			continue
		}
		out = append(out, float64(ours)/float64(native))
	}
	slices.Sort(out)
	return out[len(out)/2]
}

func namespaceOf(side bench.Side) string { return "bench-" + string(side) }

// measureComparisons measures both engines on one API server.
func (w *world) measureComparisons(ctx context.Context, names []string, r *report) error {
	if err := w.startManager(ctx); err != nil {
		return err
	}
	for _, side := range []bench.Side{bench.None, bench.Native, bench.Ostiary, bench.Webhooks} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(side), Labels: side.Labels()}}
		if err := w.client.Create(ctx, namespace); err != nil {
			return fmt.Errorf("creating a namespace: %w", err)
		}
	}
	if err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: paramsNamespace}}); err != nil {
		return fmt.Errorf("creating a namespace: %w", err)
	}
	if err := w.create(ctx, bench.ParamsHolder()); err != nil {
		return err
	}
	for _, name := range names {
		cases, err := pairs(name)
		if err != nil {
			return err
		}
		for _, c := range cases {
			result, err := w.compare(ctx, c)
			if err != nil {
				return fmt.Errorf("comparing %s: %w", c.pair.Name, err)
			}
			r.comparisons = append(r.comparisons, result)
		}
	}
	return nil
}

// compare puts a pair into force, measures it, and removes it.
func (w *world) compare(ctx context.Context, c pairCase) (*comparison, error) {
	w.log.Printf("Through the API server, %s: applying", c.pair.Name)
	if err := w.putIntoForce(ctx, c.pair); err != nil {
		return nil, err
	}
	result := &comparison{pair: c.pair, callers: c.callers, rounds: map[seat][]figures{}}
	for round := range w.options.rounds {
		for _, callers := range c.callers {
			for _, side := range c.pair.Sides() {
				f, err := w.loadSide(ctx, c.pair, seat{side, callers})
				if err != nil {
					return nil, fmt.Errorf("side %s, %d callers: %w", side, callers, err)
				}
				w.log.Printf("Through the API server, %s, round %d of %d: %s, %d callers: %.0f requests/s, p50 %.1f ms",
					c.pair.Name, round+1, w.options.rounds, side, callers, f.rate, micros(f.p50)/1000)
				result.rounds[seat{side, callers}] = append(result.rounds[seat{side, callers}], f)
			}
		}
	}
	return result, w.takeOut(ctx, c.pair)
}

func (w *world) putIntoForce(ctx context.Context, p *bench.Pair) error {
	var params []client.Object
	for _, param := range p.Params {
		params = append(params, param)
	}
	// Ostiary's last: where an API server calls it, it knows the other webhooks.
	webhooks := p.EachItsWebhook(w.noop.url, w.noop.bundle)
	if err := errors.Join(w.create(ctx, params), w.create(ctx, p.Native), w.create(ctx, webhooks), w.apply(ctx, p.Ostiary)); err != nil {
		return err
	}
	if err := w.awaitReady(ctx, len(p.Ostiary)); err != nil {
		return err
	}
	if err := w.awaitChecked(ctx); err != nil {
		return err
	}
	if err := w.awaitForce(ctx, p, bench.Ostiary, true); err != nil {
		return err
	}
	if err := w.awaitNative(ctx, p); err != nil {
		return err
	}
	none, err := w.inForce(ctx, p, bench.None)
	if none {
		err = errors.Join(err, errors.New("the policies are in force where none should be"))
	}
	return err
}

// takeOut removes a pair, and returns when it is nowhere in force.
func (w *world) takeOut(ctx context.Context, p *bench.Pair) error {
	if err := errors.Join(w.remove(ctx, p.Native), w.remove(ctx, p.EachItsWebhook("", nil))); err != nil {
		return err
	}
	if err := w.clear(ctx); err != nil {
		return err
	}
	if err := w.client.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(paramsNamespace)); err != nil {
		return fmt.Errorf("deleting the params: %w", err)
	}
	for _, side := range []bench.Side{bench.Native, bench.Ostiary} {
		if err := w.awaitForce(ctx, p, side, false); err != nil {
			return err
		}
	}
	return nil
}

// create creates objects, some at a time. When it returns, the API server has them
// all, and tells its engine of them before anything later.
func (w *world) create(ctx context.Context, objects []client.Object) error {
	errs := make([]error, len(objects))
	workqueue.ParallelizeUntil(ctx, applyWorkers, len(objects), func(i int) {
		errs[i] = w.client.Create(ctx, objects[i])
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("applying: %w", err)
	}
	return context.Cause(ctx)
}

func (w *world) remove(ctx context.Context, objects []client.Object) error {
	for _, object := range slices.Backward(objects) { // bindings before their policies
		if err := w.client.Delete(ctx, object); err != nil {
			return fmt.Errorf("deleting %s: %w", object.GetName(), err)
		}
	}
	return nil
}

func (w *world) loadSide(ctx context.Context, p *bench.Pair, s seat) (figures, error) {
	marks := p.Marks
	if s.side == bench.None {
		marks = nil
	}
	t, err := newAPITarget(w.cp.Config(), s.side, marks)
	if err != nil {
		return figures{}, err
	}
	defer t.client.CloseIdleConnections()
	body, err := bench.PodBody(bench.Good, nil)
	if err != nil {
		return figures{}, err
	}
	behind := w.manager
	if s.side == bench.Webhooks {
		behind = w.noop.running
	}
	l := load{target: t, body: body, want: verdict{allowed: true}, callers: s.callers, duration: w.options.duration}
	return l.measure(ctx, w.cp.PIDs()[controlplane.APIServer+"-0"], behind.PID())
}
