package configurations

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// apply writes one configuration by server-side apply, as the owner of every
// field in it.
func (r *Reconciler) apply(ctx context.Context, want registration.Configuration) error {
	r.applied[keyOf(want)] = want
	u, err := r.send(ctx, want)
	if err != nil {
		return err
	}
	got := registration.NewConfiguration(registration.PhaseOf(want))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, got); err != nil {
		return fmt.Errorf("reading back configuration %s: %w", want.GetName(), err)
	}
	logr.FromContextOrDiscard(ctx).Info("applied configuration", "configuration", want.GetName(), "members", len(registration.Members(want)))
	if !registration.Carries(got, want) {
		if got, err = r.overwrite(ctx, got, want); err != nil {
			return err
		}
	}
	r.written[keyOf(want)] = got
	return nil
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
		return nil, fmt.Errorf("applying configuration %s: %w", want.GetName(), err)
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
	delete(r.applied, key{ref.Phase, ref.Name})
	logr.FromContextOrDiscard(ctx).Info("deleted configuration", "configuration", ref.Name)
	return nil
}
