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

// leaving reports whether Ostiary's own namespace is being deleted, and Ostiary
// with it. Policies stay, and what is registered for them would refuse requests
// that nobody answers any more.
func (r *Reconciler) leaving(ctx context.Context) (bool, error) {
	if r.Namespace == "" {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: r.Namespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // it may have yet to be created, and is where nothing is written
	case err != nil:
		return false, fmt.Errorf("getting namespace %s: %w", r.Namespace, err)
	}
	return namespace.DeletionTimestamp != nil, nil
}

// leave deletes what is registered. The namespace takes its content with it
// seconds later, the permission to do this too.
func (r *Reconciler) leave(ctx context.Context) error {
	observed, err := r.observe(ctx)
	if err != nil {
		return err
	}
	for _, config := range observed {
		if config.GetDeletionTimestamp() != nil {
			continue
		}
		ref := registration.Ref{Phase: registration.PhaseOf(config), Name: config.GetName(), UID: config.GetUID(), ResourceVersion: config.GetResourceVersion()}
		if err := r.remove(ctx, ref); err != nil {
			return err
		}
	}
	logr.FromContextOrDiscard(ctx).Info("the namespace is being deleted: nothing is registered any more", "namespace", r.Namespace)
	return nil
}

// ownNamespace enqueues events of Ostiary's own namespace while it is deleted.
func (r *Reconciler) ownNamespace(q events.Queue, object client.Object) {
	if object.GetName() == r.Namespace && object.GetDeletionTimestamp() != nil {
		events.EnqueueSingleton(q)
	}
}
