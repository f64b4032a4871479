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
		return setPairs(comparedSets()...)
	case comparesParams:
		few := []int{fewCallers}
		return []pairCase{
			{bench.ParamsPair(64, bench.ParamsNamespace), few}, {bench.ParamsPair(manyParams, bench.ParamsNamespace), few},
			{bench.BindingsPair(64, bench.ParamsNamespace), few}, {bench.BindingsPair(manyParams, bench.ParamsNamespace), few},
		}, nil
	case comparesMatching:
		var out []pairCase
		for _, count := range []int{1, 20, 100} {
			out = append(out, pairCase{bench.MatchingPair(count), []int{fewCallers, manyCallers}})
		}
		return out, nil
	case comparesMutations:
		var out []pairCase
		for _, count := range []int{1, 5, 20} {
			out = append(out, pairCase{bench.MutationsPair(count, admissionregistrationv1.PatchTypeApplyConfiguration), []int{fewCallers}})
		}
		return append(out, pairCase{bench.MutationsPair(1, admissionregistrationv1.PatchTypeJSONPatch), []int{fewCallers}}), nil
	default:
		return setPairs(comparison)
	}
}

// comparedSets are the sets that API servers are asked about, all together or one by its name.
func comparedSets() []string { return []string{bench.B, bench.C, bench.R, bench.R2, bench.V} }

// setPairs are the pairs of some sets: with the action Deny, and with Audit if policies of the set
// deny Pods of the comparison.
func setPairs(sets ...string) ([]pairCase, error) {
	var out []pairCase
	for _, set := range sets {
		deny, errDeny := bench.PairOf(set)
		out = append(out, pairCase{deny, []int{fewCallers, manyCallers}})
		audit, errAudit := bench.AuditPairOf(set)
		if err := errors.Join(errDeny, errAudit); err != nil {
			return nil, err
		}
		if set != bench.B && set != bench.C {
			out = append(out, pairCase{audit, []int{fewCallers, manyCallers}})
		}
	}
	return out, nil
}

// seat is one side, asked by so many callers through an API server of a version.
type seat struct {
	side    bench.Side
	callers int
	version int // index
}

// at returns the seat of another side.
func (s seat) at(side bench.Side) seat {
	s.side = side
	return s
}

// comparison is what creating a pod through an API server costs on each side.
type comparison struct {
	pair     *bench.Pair
	callers  []int
	versions []string // of the API servers
	rounds   map[seat][]figures
}

// seats lists what is measured in one round. The side Webhooks does not depend on
// the engine: only the last version is measured.
func (c *comparison) seats() []seat {
	var out []seat
	for _, callers := range c.callers {
		for version := range c.versions {
			for _, side := range c.pair.Sides() {
				if side != bench.Webhooks || version == len(c.versions)-1 {
					out = append(out, seat{side, callers, version})
				}
			}
		}
	}
	return out
}

// added is by how much a side's median latency exceeds that of no policies, in
// the same round.
func (c *comparison) added(s seat, round int) time.Duration {
	return c.rounds[s][round].p50 - c.rounds[s.at(bench.None)][round].p50
}

// addedCPU is the same for the CPU of the API server and of the webhook server.
func (c *comparison) addedCPU(s seat, round int) time.Duration {
	ours, none := c.rounds[s][round], c.rounds[s.at(bench.None)][round]
	return ours.cpu + ours.behind - none.cpu - none.behind
}

// medianOf is the median of the rounds, of added or addedCPU.
func (c *comparison) medianOf(s seat, added func(seat, int) time.Duration) time.Duration {
	rounds := make([]int, len(c.rounds[s]))
	for i := range rounds {
		rounds[i] = i
	}
	return median(rounds, func(round int) time.Duration { return added(s, round) })
}

// share is what a side adds relative to what the native engine of the same version
// adds: the median of the rounds. Where that engine adds nothing, as on a machine
// that does much else, no share is small enough.
func (c *comparison) share(s seat, added func(seat, int) time.Duration) float64 {
	var out []float64
	for round := range c.rounds[s] {
		ours, native := added(s, round), added(s.at(bench.Native), round)
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

// measureComparisons measures both engines with each version of the API server.
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

// compare enforces a pair, measures it, and removes it.
func (w *world) compare(ctx context.Context, c pairCase) (*comparison, error) {
	w.log.Printf("Through the API server, %s: applying", c.pair.Name)
	if err := w.putIntoForce(ctx, c.pair); err != nil {
		return nil, err
	}
	result := &comparison{pair: c.pair, callers: c.callers, versions: w.versions, rounds: map[seat][]figures{}}
	for round := range w.options.rounds {
		for _, s := range result.seats() {
			f, err := w.loadSide(ctx, c.pair, s)
			if err != nil {
				return nil, fmt.Errorf("side %s, Kubernetes %s, %d callers: %w", s.side, w.versions[s.version], s.callers, err)
			}
			w.log.Printf("Through the API server, %s, round %d of %d: %s, Kubernetes %s, %d callers: %.0f requests/s, p50 %.1f ms",
				c.pair.Name, round+1, w.options.rounds, s.side, w.versions[s.version], s.callers, f.rate, micros(f.p50)/1000)
			result.rounds[s] = append(result.rounds[s], f)
		}
	}
	return result, w.takeOut(ctx, c.pair)
}

func (w *world) putIntoForce(ctx context.Context, p *bench.Pair) error {
	// Ostiary's last: where an API server calls it, it knows the other webhooks.
	webhooks := p.Configurations(w.noop.url, w.noop.bundle)
	applied := errors.Join(
		w.createParams(ctx, p.Params), w.create(ctx, p.Native), w.create(ctx, webhooks), w.apply(ctx, p.Ostiary))
	if applied != nil {
		return applied
	}
	if err := w.awaitReady(ctx, len(p.Ostiary)); err != nil {
		return err
	}
	if err := w.awaitChecked(ctx); err != nil {
		return err
	}
	if err := w.awaitEnforced(ctx, p, bench.Ostiary, true); err != nil {
		return err
	}
	if err := w.awaitNative(ctx, p); err != nil {
		return err
	}
	none, err := w.isEnforced(ctx, p, bench.None, false)
	if none {
		err = errors.Join(err, errors.New("policies are enforced where none should be"))
	}
	return err
}

// takeOut removes a pair, and returns when it is enforced nowhere.
func (w *world) takeOut(ctx context.Context, p *bench.Pair) error {
	if err := errors.Join(w.remove(ctx, p.Native), w.remove(ctx, p.Configurations("", nil))); err != nil {
		return err
	}
	if err := w.clear(ctx); err != nil {
		return err
	}
	for _, side := range []bench.Side{bench.Native, bench.Ostiary} {
		if err := w.awaitEnforced(ctx, p, side, false); err != nil {
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

func (w *world) createParams(ctx context.Context, params []*corev1.ConfigMap) error {
	var objects []client.Object
	for _, param := range params {
		objects = append(objects, param)
	}
	return w.create(ctx, objects)
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
	t, err := newAPITarget(w.cp.Config(apiServer(s.version, s.side)), s.side, marks)
	if err != nil {
		return figures{}, err
	}
	defer t.client.CloseIdleConnections()
	body, err := bench.PodBody(p.Pod, nil)
	if err != nil {
		return figures{}, err
	}
	behind := w.manager
	if s.side == bench.Webhooks {
		behind = w.noop.running
	}
	l := load{target: t, body: body, want: verdict{allowed: true}, callers: s.callers, duration: w.options.duration}
	return l.measure(ctx, w.cp.PIDs()[fmt.Sprintf("%s-%d", controlplane.APIServer, apiServer(s.version, s.side))], behind.PID())
}
