// Package configurations writes the generated webhook configurations. Only the
// leader runs it.
package configurations

import (
	"context"
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

// Reconciler makes the configurations in the API server equal to the plan of
// the loaded policies. It writes what differs and nothing else.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, past the cache.
	Live  client.Reader
	Store *policies.Store
	// Refusals is told of policies that the API server does not register.
	Refusals *policies.Refusals
	// Contests knows who else writes the configurations.
	Contests *Contests
	Clock    clock.PassiveClock
	// Own is what is registered for Ostiary itself. Nil is allowed.
	Own Own
	// Proof tells whether API servers reach Ostiary: until they do, nothing fails
	// closed. Nil takes it for granted.
	Proof Proof
	// Namespace is Ostiary's own: what is registered goes with it. Empty leaves that
	// to others.
	Namespace string
	// Gate keeps back what replicas cannot serve yet. Nil keeps nothing back.
	Gate *Gate
	// Registered counts the configurations in the API server, by phase.
	Registered *prometheus.GaugeVec
	// FailClosed counts those of them whose requests are refused while Ostiary does
	// not answer. Nil counts nothing.
	FailClosed *prometheus.GaugeVec
	// RefusedConditions counts the conditions that the API server refuses.
	RefusedConditions prometheus.Gauge

	// written is what this replica wrote last and the cache may not show yet.
	written map[key]registration.Configuration
	// applied is what this replica asked for last.
	applied map[key]registration.Configuration
	// overtaken is what API servers may still call otherwise, and when it was written.
	overtaken map[key]time.Time
	// settling is what API servers may not have taken up yet, and since when.
	settling map[key]unsettled
	// asked are conditions that the API server is known to take.
	asked map[string]struct{}
}

// key tells configurations apart: the two kinds may share a name.
type key struct {
	phase registration.Phase
	name  string
}

func keyOf(c registration.Configuration) key { return key{registration.PhaseOf(c), c.GetName()} }

// NewGauge makes and registers the metric for Registered.
func NewGauge(registry prometheus.Registerer) *prometheus.GaugeVec {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_registered_configurations",
		Help: "Generated webhook configurations in the API server, by phase: mutate or validate. Reported by the leader.",
	}, []string{"phase"})
	registry.MustRegister(gauge)
	return gauge
}

// NewFailClosed makes and registers the metric for FailClosed.
func NewFailClosed(registry prometheus.Registerer) *prometheus.GaugeVec {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_fail_closed_configurations",
		Help: "Generated webhook configurations whose requests are refused while Ostiary does not answer, by phase: mutate or validate. Reported by the leader.",
	}, []string{"phase"})
	registry.MustRegister(gauge)
	return gauge
}

// NewRefusedConditions makes and registers the metric for RefusedConditions.
func NewRefusedConditions(registry prometheus.Registerer) prometheus.Gauge {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ostiary_refused_conditions",
		Help: "Match conditions that the API server does not take and Ostiary evaluates alone. Reported by the leader.",
	})
	registry.MustRegister(gauge)
	return gauge
}

// Controller makes a controller for one term of leadership.
func (r *Reconciler) Controller(cache ctrlcache.Cache, log logr.Logger) (controller.Controller, error) {
	term := *r
	term.begin()
	c, err := controller.NewUnmanaged("configurations", controller.Options{
		Reconciler:         &term,
		Logger:             log,
		LogConstructor:     events.Log(log),
		SkipNameValidation: ptr.To(true), // the name is taken again in each term
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
		sources = append(sources, events.InformerSource(cache, &corev1.Namespace{}, r.ownNamespace))
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

// begin forgets what was before a term of leadership.
func (r *Reconciler) begin() {
	r.written, r.applied = map[key]registration.Configuration{}, map[key]registration.Configuration{}
	r.settling = map[key]unsettled{}
	r.overtaken, r.asked = map[key]time.Time{}, map[string]struct{}{}
}

// Reconcile applies the plan.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if leaving, err := r.leaving(ctx); err != nil || leaving {
		if err == nil {
			err = r.leave(ctx)
		}
		return ctrl.Result{}, err
	}
	state := r.Store.State()
	if state == nil || !state.Registrable {
		return ctrl.Result{}, nil // each new state asks again
	}
	observed, err := r.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := behind(state.Plan, observed); err != nil {
		return ctrl.Result{}, err
	}
	p := newPass(observed)
	p.gate = r.Gate.open(ctx, state)
	plan := r.promoted(state.Plan, observed)
	changes := registration.Diff(plan, observed)
	if err := r.write(ctx, p, changes); err != nil {
		return ctrl.Result{}, err
	}
	if wait := r.Gate.close(p.gate); wait > 0 {
		p.later(wait)
	}
	if err := r.judge(ctx, state, p.refused); err != nil {
		return ctrl.Result{}, err
	}
	r.count(plan)
	// Last, so that no policy waits for it.
	if err := r.reconcileOwn(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	err = r.announce(ctx, p)
	r.settled(p)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.settle(p)}, nil
}

// write carries out changes. What is held back or refused does not keep others
// from being written, but for what has to wait for it.
func (r *Reconciler) write(ctx context.Context, p *pass, changes registration.Changes) error {
	keeping, taking := p.split(changes.Apply)
	if err := r.applyAll(ctx, p, keeping); err != nil {
		return err
	}
	for _, want := range taking {
		if p.frees(want) {
			continue
		}
		if err := r.applyAll(ctx, p, []registration.Configuration{want}); err != nil {
			return err
		}
	}
	for _, ref := range changes.Delete {
		if p.freesAll(ref) {
			continue
		}
		if err := r.remove(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// prepare reports whether a configuration is to be written now.
func (r *Reconciler) prepare(ctx context.Context, p *pass, want registration.Configuration) (bool, error) {
	waits, err := r.waits(ctx, p, want)
	switch {
	case err != nil:
		return false, err
	case waits:
		p.leave(want)
		return false, nil
	}
	err = r.ask(ctx, want)
	if isRefusal(err) {
		p.refuse(want, err)
		return false, nil
	}
	return err == nil, err
}

// waits reports whether a configuration is not to be written now.
func (r *Reconciler) waits(ctx context.Context, p *pass, want registration.Configuration) (bool, error) {
	if r.held(p, want) {
		return true, nil
	}
	if p.observed[keyOf(want)] != nil {
		return false, nil
	}
	orphan, err := r.orphan(ctx, want)
	if orphan {
		p.later(time.Second)
	}
	return orphan, err
}

// held reports whether a configuration has to wait.
func (r *Reconciler) held(p *pass, want registration.Configuration) bool {
	return p.gate.keeps(want) || r.contested(p, want)
}

// settle says when to look again without being asked to.
func (r *Reconciler) settle(p *pass) time.Duration {
	next := p.next
	if after := r.Contests.settle(r.Clock.Now()); after > 0 && (next == 0 || after < next) {
		next = after
	}
	return next
}

// behind is an error where another process has published a trust bundle for the
// policies that this one has yet to learn of. All of a plan is of one epoch.
// Ostiary's own configurations are written as soon as this process knows of a
// bundle, which may be a moment before the plan does.
func behind(plan registration.Plan, observed []registration.Configuration) error {
	if len(plan.Groups) == 0 {
		return nil
	}
	for _, have := range observed {
		if _, ok := registration.GroupOf(have); !ok {
			continue
		}
		if err := registration.Behind(plan.Groups[0].Configuration, have); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) count(plan registration.Plan) {
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
