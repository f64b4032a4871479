package configurations

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/registration"
)

// isNamespaceDeleting reports whether Ostiary's own namespace is being deleted, or was
// deleted and has not been created again. Policies survive it, and their configurations would deny
// requests that no replica answers any more.
func (t *term) isNamespaceDeleting(ctx context.Context) (bool, error) {
	namespace := &corev1.Namespace{}
	err := t.Client.Get(ctx, client.ObjectKey{Name: t.Namespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return t.namespaceDeleted, nil // or it is created later, or Ostiary runs outside of the cluster
	case err != nil:
		return false, fmt.Errorf("getting namespace %s: %w", t.Namespace, err)
	}
	t.namespaceDeleted = namespace.DeletionTimestamp != nil
	return t.namespaceDeleted, nil
}

// deleteAll deletes the generated configurations. It has seconds: the deletion
// of the namespace also removes the permission to do so.
func (t *term) deleteAll(ctx context.Context) error {
	observed, err := t.observe(ctx)
	if err != nil {
		return err
	}
	for _, config := range observed {
		if config.GetDeletionTimestamp() != nil {
			continue
		}
		if err := t.remove(ctx, registration.RefOf(config)); err != nil {
			return err
		}
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("deleted all configurations, because the namespace is being deleted", "namespace", t.Namespace)
	return nil
}

// enqueueNamespaceDeletion enqueues the request when Ostiary's namespace is being deleted.
func (d Dependencies) enqueueNamespaceDeletion(q events.Queue, object client.Object) {
	if object.GetName() == d.Namespace && object.GetDeletionTimestamp() != nil {
		events.EnqueueSingleton(q)
	}
}
