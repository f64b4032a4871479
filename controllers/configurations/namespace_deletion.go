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
func (r *Reconciler) isNamespaceDeleting(ctx context.Context) (bool, error) {
	if r.Namespace == "" {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: r.Namespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return r.namespaceDeleted, nil // or it is created later, or Ostiary runs outside of the cluster
	case err != nil:
		return false, fmt.Errorf("getting namespace %s: %w", r.Namespace, err)
	}
	r.namespaceDeleted = namespace.DeletionTimestamp != nil
	return r.namespaceDeleted, nil
}

// deleteAll deletes the generated configurations. It has seconds: the deletion
// of the namespace also removes the permission to do so.
func (r *Reconciler) deleteAll(ctx context.Context) error {
	observed, err := r.observe(ctx)
	if err != nil {
		return err
	}
	for _, config := range observed {
		if config.GetDeletionTimestamp() != nil {
			continue
		}
		if err := r.remove(ctx, registration.RefOf(config)); err != nil {
			return err
		}
	}
	logr.FromContextOrDiscard(ctx).Info("deleted all configurations, because the namespace is being deleted", "namespace", r.Namespace)
	return nil
}

// enqueueNamespaceDeletion enqueues the request when Ostiary's namespace is being deleted.
func (r *Reconciler) enqueueNamespaceDeletion(q events.Queue, object client.Object) {
	if object.GetName() == r.Namespace && object.GetDeletionTimestamp() != nil {
		events.EnqueueSingleton(q)
	}
}
