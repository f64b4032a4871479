// Package configurations writes the generated webhook configurations. Only the
// leader runs it.
package configurations

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

type configuration = admissionregistrationv1.ValidatingWebhookConfiguration

// Reconciler makes the configurations in the API server equal to the plan of
// the loaded policies. It writes what differs and nothing else.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, past the cache.
	Live  client.Reader
	Store *policies.Store
	// Registered counts the configurations in the API server.
	Registered prometheus.Gauge

	// written is what this replica wrote last and the cache may not show yet.
	written map[string]*configuration
}

// NewGauge makes and registers the metric for Registered.
func NewGauge(registry prometheus.Registerer) prometheus.Gauge {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ostiary_registered_configurations",
		Help: "Generated webhook configurations in the API server. Reported by the leader.",
	})
	registry.MustRegister(gauge)
	return gauge
}

// Controller makes a controller for one term of leadership.
func (r *Reconciler) Controller(cache ctrlcache.Cache, log logr.Logger) (controller.Controller, error) {
	term := *r
	term.written = map[string]*configuration{}
	c, err := controller.NewUnmanaged("configurations", controller.Options{
		Reconciler:         &term,
		Logger:             log,
		LogConstructor:     single.Log(log),
		SkipNameValidation: ptr.To(true), // the name is taken again in each term
	})
	if err != nil {
		return nil, fmt.Errorf("making the configuration controller: %w", err)
	}
	for _, s := range []source.Source{
		single.Signals(r.Store.Subscribe, single.Enqueue),
		single.Events(cache, &configuration{}, func(q single.Queue, _ client.Object) { single.Enqueue(q) }),
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
	r.Registered.Set(float64(len(state.Plan.Groups)))
	return ctrl.Result{}, nil
}

// observe lists the configurations as they are known to be: as the cache shows
// them, or as they were when this replica wrote them, where that is later.
func (r *Reconciler) observe(ctx context.Context) ([]*configuration, error) {
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing configurations: %w", err)
	}
	observed := make([]*configuration, 0, len(list.Items))
	seen := map[string]bool{}
	for i := range list.Items {
		item := &list.Items[i]
		seen[item.Name] = true
		if w := r.written[item.Name]; w != nil && w.UID == item.UID && newer(w.ResourceVersion, item.ResourceVersion) {
			item = w
		} else {
			delete(r.written, item.Name)
		}
		observed = append(observed, item)
	}
	for name := range r.written {
		if seen[name] {
			continue
		}
		// Created and not in the cache yet, or deleted since: only the API server knows.
		live, err := r.live(ctx, name)
		if err != nil {
			return nil, err
		}
		if live == nil {
			delete(r.written, name)
			continue
		}
		observed = append(observed, live)
	}
	return observed, nil
}

func (r *Reconciler) live(ctx context.Context, name string) (*configuration, error) {
	config := &configuration{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, config)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting configuration %s: %w", name, err)
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
func (r *Reconciler) apply(ctx context.Context, want *configuration) error {
	log := logr.FromContextOrDiscard(ctx)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("converting configuration %s: %w", want.Name, err)
	}
	u := &unstructured.Unstructured{Object: fields}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(registration.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying configuration %s: %w", want.Name, err)
	}
	got := &configuration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, got); err != nil {
		return fmt.Errorf("reading back configuration %s: %w", want.Name, err)
	}
	log.Info("applied configuration", "configuration", want.Name, "members", len(registration.Members(want)))
	if !registration.Carries(got, want) {
		if got, err = r.overwrite(ctx, got, want); err != nil {
			return err
		}
	}
	r.written[want.Name] = got
	return nil
}

// overwrite removes what another field manager added to the webhooks, which an
// apply cannot: a webhook or a condition of its own. A merge patch replaces the
// whole list, if the configuration is still as it was read.
func (r *Reconciler) overwrite(ctx context.Context, have, want *configuration) (*configuration, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": have.ResourceVersion},
		"webhooks": want.Webhooks,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the webhooks of configuration %s: %w", want.Name, err)
	}
	changed := have.DeepCopy()
	if err := r.Client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(registration.FieldManager)); err != nil {
		return nil, fmt.Errorf("overwriting configuration %s: %w", want.Name, err)
	}
	logr.FromContextOrDiscard(ctx).Info("removed foreign fields from configuration", "configuration", want.Name)
	return changed, nil
}

// remove deletes a configuration that carries nothing, if it is still the one
// that was looked at.
func (r *Reconciler) remove(ctx context.Context, ref registration.Ref) error {
	config := &configuration{}
	config.Name = ref.Name
	err := r.Client.Delete(ctx, config, client.Preconditions{UID: &ref.UID, ResourceVersion: &ref.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting configuration %s: %w", ref.Name, err)
	}
	delete(r.written, ref.Name)
	logr.FromContextOrDiscard(ctx).Info("deleted configuration", "configuration", ref.Name)
	return nil
}
