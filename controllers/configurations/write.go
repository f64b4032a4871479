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

// writers is the number of configurations that are written in parallel. API
// servers take no longer for several than for one.
const writers = 8

// applyAll writes independent configurations in parallel. A failed write does not
// prevent the others.
func (t *term) applyAll(ctx context.Context, p *pass, wants []registration.Configuration) error {
	var failures []error
	var ready []registration.Configuration
	for _, want := range wants {
		now, err := t.prepare(ctx, p, want)
		switch {
		case err != nil:
			failures = append(failures, err)
		case now:
			ready = append(ready, want)
		}
	}
	// Before the first write is visible.
	t.startPropagation(p, ready)
	got, errs := make([]registration.Configuration, len(ready)), make([]error, len(ready))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(ready), func(i int) {
		got[i], errs[i] = t.apply(ctx, ready[i])
	})
	for i, want := range ready {
		switch {
		case errs[i] == nil:
			t.recordWrite(p.observed[registration.KeyOf(want)], want, got[i])
		case isRejection(errs[i]):
			p.reject(want, errs[i])
		default:
			failures = append(failures, errs[i])
		}
	}
	if len(failures) > 0 {
		return failures[0] // the next reconcile retries all of them
	}
	return nil
}

// recordWrite records a successful write: the previous object, the applied and the resulting one.
func (t *term) recordWrite(had, want, got registration.Configuration) {
	k := registration.KeyOf(want)
	if at := t.touchDue(had, want); !at.IsZero() {
		t.touchAt[k] = at
	}
	if u, ok := t.propagating[k]; ok {
		u.since = t.Clock.Now()
		t.propagating[k] = u
	}
	t.applied[k], t.written[k] = want, got
}

// apply writes one configuration by server-side apply and owns every field in it.
// It does not change t, because several run in parallel.
func (t *term) apply(ctx context.Context, want registration.Configuration) (registration.Configuration, error) {
	repair, now := t.isRepair(want), t.Clock.Now()
	if repair {
		t.identifyManager(ctx, registration.KeyOf(want), now)
	}
	u, err := t.send(ctx, want)
	if err != nil {
		return nil, err
	}
	got, err := toTyped(u, registration.PhaseOf(want))
	if err != nil {
		return nil, err
	}
	logr.FromContextOrDiscard(ctx).Info("applied configuration", "configuration", want.GetName(), "members", len(registration.Members(want)))
	if !registration.Matches(got, want) {
		if got, err = t.overwrite(ctx, got, want); err != nil {
			return nil, err
		}
	}
	if repair {
		t.Conflicts.recordRepair(registration.KeyOf(want), now)
	}
	return got, nil
}

func toTyped(u *unstructured.Unstructured, phase registration.Phase) (registration.Configuration, error) {
	got := registration.NewConfiguration(phase)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, got); err != nil {
		return nil, fmt.Errorf("reading back configuration %s: %w", u.GetName(), err)
	}
	return got, nil
}

// send applies a configuration and returns the result.
func (t *term) send(
	ctx context.Context, want registration.Configuration, options ...client.ApplyOption,
) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return nil, fmt.Errorf("converting configuration %s: %w", want.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: fields}
	options = append(options, client.FieldOwner(registration.FieldManager), client.ForceOwnership)
	if err := t.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...); err != nil {
		return nil, fmt.Errorf("applying configuration %s: %w", want.GetName(), registration.ConcealError(err))
	}
	return u, nil
}

// overwrite removes webhooks and match conditions that another field manager
// added, which server-side apply keeps. A merge patch replaces the whole list,
// unless the configuration has changed since it was read.
func (t *term) overwrite(
	ctx context.Context, have, want registration.Configuration,
) (registration.Configuration, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": have.GetResourceVersion()},
		"webhooks": registration.Webhooks(want),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the webhooks of configuration %s: %w", want.GetName(), err)
	}
	changed := registration.NewConfiguration(registration.PhaseOf(want))
	changed.SetName(want.GetName())
	raw := client.RawPatch(types.MergePatchType, patch)
	if err := t.Client.Patch(ctx, changed, raw, client.FieldOwner(registration.FieldManager)); err != nil {
		return nil, fmt.Errorf("overwriting configuration %s: %w", want.GetName(), registration.ConcealError(err))
	}
	logr.FromContextOrDiscard(ctx).Info("removed other managers' fields from configuration", "configuration", want.GetName())
	return changed, nil
}

// remove deletes a configuration without members, if its version is still the
// observed one.
func (t *term) remove(ctx context.Context, ref registration.Ref) error {
	config := registration.NewConfiguration(ref.Phase)
	config.SetName(ref.Name)
	err := t.Client.Delete(ctx, config, client.Preconditions{UID: &ref.UID, ResourceVersion: &ref.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting configuration %s: %w", ref.Name, err)
	}
	t.forget(ref.Key)
	logr.FromContextOrDiscard(ctx).Info("deleted configuration", "configuration", ref.Name)
	return nil
}

// forget drops the state of a deleted configuration.
func (t *term) forget(k registration.Key) {
	delete(t.written, k)
	delete(t.applied, k)
	delete(t.touchAt, k)
	delete(t.propagating, k)
}
