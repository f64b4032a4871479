package configurations

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// writers is how many configurations are written at a time. API servers take
// no longer for several than for one, and each one that is wrong fails requests.
const writers = 8

// applyAll writes configurations of which none waits for another. One that
// cannot be written keeps none of the others from it.
func (r *Reconciler) applyAll(ctx context.Context, p *pass, wants []registration.Configuration) error {
	var failures []error
	var ready []registration.Configuration
	for _, want := range wants {
		now, err := r.prepare(ctx, p, want)
		switch {
		case err != nil:
			failures = append(failures, err)
		case now:
			ready = append(ready, want)
		}
	}
	// Before anyone can see that it is written.
	r.unsettle(p, ready)
	got, errs := make([]registration.Configuration, len(ready)), make([]error, len(ready))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(ready), func(i int) {
		got[i], errs[i] = r.apply(ctx, ready[i])
	})
	for i, want := range ready {
		switch {
		case errs[i] == nil:
			r.remember(p.observed[keyOf(want)], want, got[i])
		case isRefusal(errs[i]):
			p.refuse(want, errs[i])
		default:
			failures = append(failures, errs[i])
		}
	}
	if len(failures) > 0 {
		return failures[0] // the others say the same, or are tried again with it
	}
	return nil
}

// remember notes what there was, what was asked for and what has become of it.
func (r *Reconciler) remember(had, want, got registration.Configuration) {
	k := keyOf(want)
	if r.again(want) || registration.Misleads(had, want) {
		r.overtaken[k] = r.Clock.Now()
	}
	if u, ok := r.settling[k]; ok {
		u.since = r.Clock.Now()
		r.settling[k] = u
	}
	r.applied[k], r.written[k] = want, got
}

// apply writes one configuration by server-side apply, as the owner of every
// field in it. It changes nothing in r: several are written at a time.
func (r *Reconciler) apply(ctx context.Context, want registration.Configuration) (registration.Configuration, error) {
	repair, now := r.again(want), r.Clock.Now()
	if repair {
		r.identify(ctx, keyOf(want), now)
	}
	u, err := r.send(ctx, want)
	if err != nil {
		return nil, err
	}
	got, err := typed(u, registration.PhaseOf(want))
	if err != nil {
		return nil, err
	}
	logr.FromContextOrDiscard(ctx).Info("applied configuration", "configuration", want.GetName(), "members", len(registration.Members(want)))
	if !registration.Carries(got, want) {
		if got, err = r.overwrite(ctx, got, want); err != nil {
			return nil, err
		}
	}
	if repair {
		r.Contests.repaired(keyOf(want), now)
	}
	return got, nil
}

func typed(u *unstructured.Unstructured, phase registration.Phase) (registration.Configuration, error) {
	got := registration.NewConfiguration(phase)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, got); err != nil {
		return nil, fmt.Errorf("reading back configuration %s: %w", u.GetName(), err)
	}
	return got, nil
}

// send applies a configuration, and gives what the API server made of it.
func (r *Reconciler) send(ctx context.Context, want registration.Configuration, options ...client.ApplyOption) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return nil, fmt.Errorf("converting configuration %s: %w", want.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: fields}
	options = append(options, client.FieldOwner(registration.FieldManager), client.ForceOwnership)
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...); err != nil {
		return nil, fmt.Errorf("applying configuration %s: %w", want.GetName(), registration.ConcealError(err))
	}
	return u, nil
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
		return nil, fmt.Errorf("overwriting configuration %s: %w", want.GetName(), registration.ConcealError(err))
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
	r.forget(key{ref.Phase, ref.Name})
	logr.FromContextOrDiscard(ctx).Info("deleted configuration", "configuration", ref.Name)
	return nil
}

// forget drops what is remembered of a configuration that is no more.
func (r *Reconciler) forget(k key) {
	delete(r.written, k)
	delete(r.applied, k)
	delete(r.overtaken, k)
	delete(r.settling, k)
}
