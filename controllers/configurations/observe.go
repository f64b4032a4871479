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
		if w := r.written[k]; w != nil && newer(w.GetResourceVersion(), item.GetResourceVersion()) {
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

// maxOwners is how many owners of a configuration are looked up before it is
// taken for an orphan: for now, since it is looked at again.
const maxOwners = 10

// orphan reports whether the policies that a configuration is for are gone. It
// is asked before one is created: garbage collection deletes configurations with
// their policies, and this replica may learn of that before it learns that the
// policies are gone. Made anew, the configuration would have API servers ask
// about policies that nobody answers for any more.
func (r *Reconciler) orphan(ctx context.Context, want registration.Configuration) (bool, error) {
	owners := want.GetOwnerReferences()
	for _, owner := range owners[:min(len(owners), maxOwners)] {
		policy := &metav1.PartialObjectMetadata{}
		policy.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		err := r.Live.Get(ctx, client.ObjectKey{Name: owner.Name}, policy)
		switch {
		case err == nil && policy.UID == owner.UID:
			return false, nil
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("looking for policy %s, which configuration %s is for: %w", owner.Name, want.GetName(), err)
		}
	}
	return len(owners) > 0, nil
}
