// Package configurations writes the generated webhook configurations. Only the
// leader runs it.
package configurations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/registration"
)

// Reconciler writes the planned configurations to the API server. It writes only
// those that differ.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server instead of the cache.
	Live  client.Reader
	Store *policies.Store
	// Refusals records the policies that the API server rejects.
	Refusals *policies.Refusals
	// Conflicts tracks other clients that write the configurations.
	Conflicts *ConflictTracker
	Clock     clock.PassiveClock
	// Own returns Ostiary's own configurations. It may be nil.
	Own Own
	// Proof reports whether API servers reach Ostiary. Until they do, webhooks are
	// held at failurePolicy Ignore. Nil counts as proven.
	Proof Proof
	// Namespace is Ostiary's own. The configurations are deleted when it is. If it
	// is empty, they are not.
	Namespace string
	// Gate blocks configurations that a replica cannot serve yet. Nil blocks none.
	Gate *ReplicaGate
	// Registered counts the planned configurations by phase.
	Registered *prometheus.GaugeVec
	// FailClosed counts those with a webhook of failurePolicy Fail. It may be nil.
	FailClosed *prometheus.GaugeVec
	// RefusedConditions counts the match conditions that the API server rejects.
	RefusedConditions prometheus.Gauge

	// namespaceDeleted is whether the namespace was being deleted when it last existed.
	namespaceDeleted bool
	// written is the result of this replica's last write, while the cache may be older.
	written map[registration.Key]registration.Configuration
	// applied is the content of this replica's last write.
	applied map[registration.Key]registration.Configuration
	// touchAt is the time at which API servers need another event; see touch.
	touchAt map[registration.Key]time.Time
	// existing are the configurations of the last pass, deleted the times at which
	// configurations were found to be gone, and termStart is the start of this term.
	existing  map[registration.Key]bool
	deleted   map[registration.Key]time.Time
	termStart time.Time
	// propagating are recent writes that API servers may not call by yet.
	propagating map[registration.Key]propagation
	// probedConditions are match conditions that the API server accepts.
	probedConditions map[string]struct{}
}

// NewGauge returns the metric for Registered, and registers it.
func NewGauge(registry prometheus.Registerer) *prometheus.GaugeVec {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_registered_configurations",
		Help: "Generated webhook configurations in the API server, by phase: mutate or validate. Reported by the leader.",
	}, []string{"phase"})
	registry.MustRegister(gauge)
	return gauge
}

// NewFailClosed returns the metric for FailClosed, and registers it.
func NewFailClosed(registry prometheus.Registerer) *prometheus.GaugeVec {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_fail_closed_configurations",
		Help: "Generated webhook configurations whose requests are denied while Ostiary does not answer, by phase: mutate or validate. Reported by the leader.",
	}, []string{"phase"})
	registry.MustRegister(gauge)
	return gauge
}

// NewRefusedConditions returns the metric for RefusedConditions, and registers it.
func NewRefusedConditions(registry prometheus.Registerer) prometheus.Gauge {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ostiary_rejected_match_conditions",
		Help: "Different match conditions that the API server has rejected since the leader's process started. Only Ostiary evaluates them. Reported by the leader.",
	})
	registry.MustRegister(gauge)
	return gauge
}

// Controller returns a controller for one term of leadership.
func (r *Reconciler) Controller(cache ctrlcache.Cache, log logr.Logger) (controller.Controller, error) {
	term := *r
	term.reset()
	c, err := controller.NewUnmanaged("configurations", controller.Options{
		Reconciler:         &term,
		Logger:             log,
		LogConstructor:     events.Log(log),
		SkipNameValidation: ptr.To(true), // each term uses the name again
	})
	if err != nil {
		return nil, fmt.Errorf("making the configuration controller: %w", err)
	}
	enqueue := func(q events.Queue, _ client.Object) { events.EnqueueSingleton(q) }
	sources := []source.Source{
		events.ChannelSource(r.Store.Subscribe, events.EnqueueSingleton),
		events.InformerSource(cache, registration.NewConfiguration(registration.PhaseMutate), enqueue),
		events.InformerSource(cache, registration.NewConfiguration(registration.PhaseValidate), enqueue),
	}
	if r.Namespace != "" {
		sources = append(sources, events.InformerSource(cache, &corev1.Namespace{}, r.enqueueNamespaceDeletion))
	}
	if r.Gate != nil {
		sources = append(sources, events.ChannelSource(r.Gate.Subscribe, events.EnqueueSingleton))
	}
	if r.Proof != nil {
		sources = append(sources, events.ChannelSource(r.Proof.Subscribe, events.EnqueueSingleton))
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return nil, fmt.Errorf("watching for the configuration controller: %w", err)
		}
	}
	return c, nil
}

// reset drops the state of an earlier term of leadership.
func (r *Reconciler) reset() {
	r.written, r.applied = map[registration.Key]registration.Configuration{}, map[registration.Key]registration.Configuration{}
	r.propagating = map[registration.Key]propagation{}
	r.touchAt, r.probedConditions = map[registration.Key]time.Time{}, map[string]struct{}{}
	r.existing, r.deleted, r.termStart = nil, map[registration.Key]time.Time{}, r.Clock.Now()
}

// Reconcile applies the plan.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if deleting, err := r.isNamespaceDeleting(ctx); err != nil || deleting {
		if err == nil {
			err = r.deleteAll(ctx)
		}
		return ctrl.Result{}, err
	}
	state := r.Store.State()
	if state == nil || !state.Registrable {
		return ctrl.Result{}, nil // each new state enqueues the request
	}
	observed, err := r.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := newPass(observed)
	p.gate = r.Gate.Snapshot(ctx, state)
	// Own configurations come last, so that no policy waits for them.
	if err := errors.Join(r.reconcilePlan(ctx, p, state, observed), r.reconcileOwn(ctx, p)); err != nil {
		return ctrl.Result{}, err
	}
	err = r.touch(ctx, p)
	r.finishPropagation(p)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.requeueAfterPass(p)}, nil
}

// reconcilePlan writes the configurations of call groups.
func (r *Reconciler) reconcilePlan(ctx context.Context, p *pass, state *policies.State, observed []registration.Configuration) error {
	if err := checkEpochs(state.Plan, observed); err != nil {
		return err
	}
	plan, err := r.withoutDeletedOwners(ctx, p, r.holdUnproven(state.Plan, observed))
	if err != nil {
		return err
	}
	if err := r.write(ctx, p, registration.Diff(plan, observed)); err != nil {
		return err
	}
	if wait := r.Gate.Publish(p.gate); wait > 0 {
		p.requeueWithin(wait)
	}
	if err := r.resolveRejections(ctx, state, p.rejections); err != nil {
		return err
	}
	r.updateGauges(plan)
	return nil
}

// write applies changes. A blocked or rejected configuration delays only the
// removals that depend on it.
func (r *Reconciler) write(ctx context.Context, p *pass, changes registration.Changes) error {
	additive, removing := p.split(changes.Apply)
	if err := r.applyAll(ctx, p, additive); err != nil {
		return err
	}
	for _, want := range removing {
		if p.wouldDrop(want) {
			continue
		}
		if err := r.applyAll(ctx, p, []registration.Configuration{want}); err != nil {
			return err
		}
	}
	for _, ref := range changes.Delete {
		if p.wouldDropAny(ref) {
			continue
		}
		if err := r.remove(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// prepare reports whether to write a configuration now.
func (r *Reconciler) prepare(ctx context.Context, p *pass, want registration.Configuration) (bool, error) {
	waits, err := r.mustWait(ctx, p, want)
	switch {
	case err != nil:
		return false, err
	case waits:
		p.postpone(want)
		return false, nil
	}
	err = r.probeCondition(ctx, want)
	if isRejection(err) {
		p.reject(want, err)
		return false, nil
	}
	return err == nil, err
}

// mustWait reports whether a configuration must not be written yet.
func (r *Reconciler) mustWait(ctx context.Context, p *pass, want registration.Configuration) (bool, error) {
	if r.isBlocked(p, want) {
		return true, nil
	}
	if p.observed[registration.KeyOf(want)] != nil {
		return false, nil
	}
	orphan, err := r.isOrphan(ctx, want)
	if orphan {
		p.requeueWithin(time.Second)
	}
	return orphan, err
}

// isBlocked reports whether replicas or a conflict delay the write.
func (r *Reconciler) isBlocked(p *pass, want registration.Configuration) bool {
	return p.gate.Blocks(want) || r.isBackingOff(p, want)
}

// requeueAfterPass returns the time until the next reconcile without an event.
func (r *Reconciler) requeueAfterPass(p *pass) time.Duration {
	next := p.requeueAfter
	if after := r.Conflicts.expire(r.Clock.Now()); after > 0 && (next == 0 || after < next) {
		next = after
	}
	return next
}

// checkEpochs returns an error if another process has published a newer trust
// bundle than the one in the plan. All groups of a plan have one epoch. Ostiary's
// own configurations may have a newer one than the plan for a moment.
func checkEpochs(plan registration.Plan, observed []registration.Configuration) error {
	if len(plan.Groups) == 0 {
		return nil
	}
	for _, have := range observed {
		if _, ok := registration.GroupOf(have); !ok {
			continue
		}
		if err := registration.CheckEpoch(plan.Groups[0].Configuration, have); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) updateGauges(plan registration.Plan) {
	all, closed := map[registration.Phase]int{}, map[registration.Phase]int{}
	for i := range plan.Groups {
		group := &plan.Groups[i]
		all[group.Phase]++
		if slices.ContainsFunc(registration.Webhooks(group.Configuration), failsClosed) {
			closed[group.Phase]++
		}
	}
	for _, phase := range []registration.Phase{registration.PhaseMutate, registration.PhaseValidate} {
		r.Registered.WithLabelValues(string(phase)).Set(float64(all[phase]))
		if r.FailClosed != nil {
			r.FailClosed.WithLabelValues(string(phase)).Set(float64(closed[phase]))
		}
	}
}

func failsClosed(w admissionregistrationv1.MutatingWebhook) bool {
	return ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail
}
