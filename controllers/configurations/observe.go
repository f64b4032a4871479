package configurations

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/registration"
)

// observe lists the configurations: from the cache, or as this replica wrote
// them if that is newer.
func (t *term) observe(ctx context.Context) ([]registration.Configuration, error) {
	observed, err := policies.Configurations(ctx, t.Client)
	if err != nil {
		return nil, err
	}
	seen := map[registration.Key]bool{}
	for i, item := range observed {
		k := registration.KeyOf(item)
		seen[k] = true
		if w := t.written[k]; w != nil && isNewer(w.GetResourceVersion(), item.GetResourceVersion()) {
			observed[i] = w
		} else {
			delete(t.written, k)
		}
	}
	for k := range t.written {
		if seen[k] {
			continue
		}
		// Created and not cached yet, or deleted since: ask the API server.
		live, err := t.getLive(ctx, k)
		if err != nil {
			return nil, err
		}
		if live == nil {
			delete(t.written, k)
			continue
		}
		observed = append(observed, live)
		seen[k] = true
	}
	t.recordDeletions(seen)
	return observed, nil
}

func (t *term) getLive(ctx context.Context, k registration.Key) (registration.Configuration, error) {
	config := registration.NewConfiguration(k.Phase)
	err := t.Live.Get(ctx, client.ObjectKey{Name: k.Name}, config)
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
