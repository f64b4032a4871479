// Package configurations writes the generated webhook configurations. Only the
// leader runs it.
package configurations

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/single"
	"github.com/ostiary/ostiary/internal/registration"
)

// Reconciler makes the configurations in the API server equal to the plan of
// the loaded policies. It writes what differs and nothing else.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, past the cache.
	Live  client.Reader
	Store *policies.Store
	// Registered counts the configurations in the API server, by phase.
	Registered *prometheus.GaugeVec

	// written is what this replica wrote last and the cache may not show yet.
	written map[key]registration.Configuration
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

// Controller makes a controller for one term of leadership.
func (r *Reconciler) Controller(cache ctrlcache.Cache, log logr.Logger) (controller.Controller, error) {
	term := *r
	term.written = map[key]registration.Configuration{}
	c, err := controller.NewUnmanaged("configurations", controller.Options{
		Reconciler:         &term,
		Logger:             log,
		LogConstructor:     single.Log(log),
		SkipNameValidation: ptr.To(true), // the name is taken again in each term
	})
	if err != nil {
		return nil, fmt.Errorf("making the configuration controller: %w", err)
	}
	enqueue := func(q single.Queue, _ client.Object) { single.Enqueue(q) }
	for _, s := range []source.Source{
		single.Signals(r.Store.Subscribe, single.Enqueue),
		single.Events(cache, registration.NewConfiguration(registration.PhaseMutate), enqueue),
		single.Events(cache, registration.NewConfiguration(registration.PhaseValidate), enqueue),
	} {
		if err := c.Watch(s); err != nil {
			return nil, fmt.Errorf("watching for the configuration controller: %w", err)
		}
	}
	return c, nil
}

// Reconcile applies the plan.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	state := r.Store.State()
	if state == nil || !state.Registrable {
		return ctrl.Result{}, nil // each new state asks again
	}
	observed, err := r.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	changes := registration.Diff(state.Plan, observed)
	for _, want := range changes.Apply {
		if err := r.apply(ctx, want); err != nil {
			return ctrl.Result{}, err
		}
	}
	for _, ref := range changes.Delete {
		if err := r.remove(ctx, ref); err != nil {
			return ctrl.Result{}, err
		}
	}
	r.count(state.Plan)
	return ctrl.Result{}, nil
}

func (r *Reconciler) count(plan registration.Plan) {
	n := map[registration.Phase]int{registration.PhaseMutate: 0, registration.PhaseValidate: 0}
	for i := range plan.Groups {
		n[plan.Groups[i].Phase]++
	}
	for phase, count := range n {
		r.Registered.WithLabelValues(string(phase)).Set(float64(count))
	}
}

// observe lists the configurations as they are known to be: as the cache shows
// them, or as they were when this replica wrote them, where that is later.
func (r *Reconciler) observe(ctx context.Context) ([]registration.Configuration, error) {
	observed, err := policies.Configurations(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	seen := map[key]bool{}
	for i, item := range observed {
		k := keyOf(item)
		seen[k] = true
		if w := r.written[k]; w != nil && w.GetUID() == item.GetUID() && newer(w.GetResourceVersion(), item.GetResourceVersion()) {
			observed[i] = w
		} else {
			delete(r.written, k)
		}
	}
	for k := range r.written {
		if seen[k] {
			continue
		}
		// Created and not in the cache yet, or deleted since: only the API server knows.
		live, err := r.live(ctx, k)
		if err != nil {
			return nil, err
		}
		if live == nil {
			delete(r.written, k)
			continue
		}
		observed = append(observed, live)
	}
	return observed, nil
}

func (r *Reconciler) live(ctx context.Context, k key) (registration.Configuration, error) {
	config := registration.NewConfiguration(k.phase)
	err := r.Live.Get(ctx, client.ObjectKey{Name: k.name}, config)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting configuration %s: %w", k.name, err)
	default:
		return config, nil
	}
}

// newer reports whether version a is later than b. Versions that cannot be
// compared count as no later: the cache is right in the end.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// apply writes one configuration by server-side apply, as the owner of every
// field in it.
func (r *Reconciler) apply(ctx context.Context, want registration.Configuration) error {
	log := logr.FromContextOrDiscard(ctx)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("converting configuration %s: %w", want.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: fields}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(registration.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying configuration %s: %w", want.GetName(), err)
	}
	got := registration.NewConfiguration(registration.PhaseOf(want))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, got); err != nil {
		return fmt.Errorf("reading back configuration %s: %w", want.GetName(), err)
	}
	log.Info("applied configuration", "configuration", want.GetName(), "members", len(registration.Members(want)))
	if !registration.Carries(got, want) {
		if got, err = r.overwrite(ctx, got, want); err != nil {
			return err
		}
	}
	r.written[keyOf(want)] = got
	return nil
}

// overwrite removes what another field manager added to the webhooks, which an
// apply cannot: a webhook or a condition of its own. A merge patch replaces the
// whole list, if the configuration is still as it was read.
func (r *Reconciler) overwrite(ctx context.Context, have, want registration.Configuration) (registration.Configuration, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": have.GetResourceVersion()},
		"webhooks": registration.Webhooks(want),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the webhooks of configuration %s: %w", want.GetName(), err)
	}
	changed := registration.NewConfiguration(registration.PhaseOf(want))
	changed.SetName(want.GetName())
	if err := r.Client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(registration.FieldManager)); err != nil {
		return nil, fmt.Errorf("overwriting configuration %s: %w", want.GetName(), err)
	}
	logr.FromContextOrDiscard(ctx).Info("removed foreign fields from configuration", "configuration", want.GetName())
	return changed, nil
}

// remove deletes a configuration that carries nothing, if it is still the one
// that was looked at.
func (r *Reconciler) remove(ctx context.Context, ref registration.Ref) error {
	config := registration.NewConfiguration(ref.Phase)
	config.SetName(ref.Name)
	err := r.Client.Delete(ctx, config, client.Preconditions{UID: &ref.UID, ResourceVersion: &ref.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting configuration %s: %w", ref.Name, err)
	}
	delete(r.written, key{ref.Phase, ref.Name})
	logr.FromContextOrDiscard(ctx).Info("deleted configuration", "configuration", ref.Name)
	return nil
}
