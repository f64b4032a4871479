// Package configurations writes the generated webhook configurations. Only the
// leader runs it.
package configurations

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/registration"
)

// Dependencies are what writes the planned configurations to the API server needs. They
// are the same for all terms of leadership, and all of them are required.
type Dependencies struct {
	Client client.Client
	// Live reads from the API server instead of the cache.
	Live  client.Reader
	Store *policies.Store
	// Refusals records the policies that the API server rejects.
	Refusals *policies.Refusals
	// Conflicts tracks other clients that write the configurations.
	Conflicts *ConflictTracker
	Clock     clock.PassiveClock
	// Own returns Ostiary's own configurations.
	Own Own
	// Proof reports whether API servers reach Ostiary. Until they do, webhooks are
	// held at failurePolicy Ignore.
	Proof Proof
	// Namespace is Ostiary's own. The configurations are deleted when it is.
	Namespace string
	// Gate blocks configurations that a replica cannot serve yet.
	Gate    *ReplicaGate
	Metrics Metrics
}

// Proof reports whether API servers reach Ostiary.
type Proof interface {
	Proven(phase registration.Phase) bool
	Subscribe(ctx context.Context) <-chan struct{}
}

// Controller returns a controller for one term of leadership.
func (d Dependencies) Controller(cache ctrlcache.Cache, log logr.Logger) (controller.Controller, error) {
	c, err := controller.NewUnmanaged("configurations", controller.Options{
		Reconciler:         newTerm(d),
		Logger:             log,
		LogConstructor:     events.Log(log),
		SkipNameValidation: ptr.To(true), // each term uses the name again
	})
	if err != nil {
		return nil, fmt.Errorf("making the configuration controller: %w", err)
	}
	enqueue := func(q events.Queue, _ client.Object) { events.EnqueueSingleton(q) }
	for _, s := range []source.Source{
		events.ChannelSource(d.changes, events.EnqueueSingleton),
		events.InformerSource(cache, registration.NewConfiguration(registration.PhaseMutate), enqueue),
		events.InformerSource(cache, registration.NewConfiguration(registration.PhaseValidate), enqueue),
		events.InformerSource(cache, &corev1.Namespace{}, d.enqueueNamespaceDeletion),
	} {
		if err := c.Watch(s); err != nil {
			return nil, fmt.Errorf("watching for the configuration controller: %w", err)
		}
	}
	return c, nil
}

// changes returns a channel that receives after each change that a plan or its
// registration depends on, besides those of objects, until ctx ends.
func (d Dependencies) changes(ctx context.Context) <-chan struct{} {
	return events.Merge(ctx, d.Store.Subscribe, d.Gate.Subscribe, d.Proof.Subscribe)
}
