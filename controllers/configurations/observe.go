package configurations

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/registration"
)

// observe lists the configurations: from the cache, or as this replica wrote
// them if that is newer.
func (r *Reconciler) observe(ctx context.Context) ([]registration.Configuration, error) {
	observed, err := policies.Configurations(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	seen := map[registration.Key]bool{}
	for i, item := range observed {
		k := registration.KeyOf(item)
		seen[k] = true
		if w := r.written[k]; w != nil && isNewer(w.GetResourceVersion(), item.GetResourceVersion()) {
			observed[i] = w
		} else {
			delete(r.written, k)
		}
	}
	for k := range r.written {
		if seen[k] {
			continue
		}
		// Created and not cached yet, or deleted since: ask the API server.
		live, err := r.getLive(ctx, k)
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

func (r *Reconciler) getLive(ctx context.Context, k registration.Key) (registration.Configuration, error) {
	config := registration.NewConfiguration(k.Phase)
	err := r.Live.Get(ctx, client.ObjectKey{Name: k.Name}, config)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting configuration %s: %w", k.Name, err)
	default:
		return config, nil
	}
}

// isNewer reports whether resource version a is newer than b. Versions that
// cannot be compared are not newer: the cache catches up.
func isNewer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// maxOwners bounds the owners that isOrphan looks up. Beyond it a configuration
// counts as an orphan until the next reconcile.
const maxOwners = 10

// isOrphan reports whether all policies that own a configuration are deleted. It
// is checked before a configuration is created: garbage collection deletes
// configurations together with their policies, and this replica may see the
// former deletion first. A configuration that is created again would call
// Ostiary for policies that no longer exist.
func (r *Reconciler) isOrphan(ctx context.Context, want registration.Configuration) (bool, error) {
	owners := want.GetOwnerReferences()
	for _, owner := range owners[:min(len(owners), maxOwners)] {
		policy := &metav1.PartialObjectMetadata{}
		policy.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		err := r.Live.Get(ctx, client.ObjectKey{Name: owner.Name}, policy)
		switch {
		case err == nil && policy.UID == owner.UID:
			return false, nil
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("getting policy %s, an owner of configuration %s: %w", owner.Name, want.GetName(), err)
		}
	}
	return len(owners) > 0, nil
}
