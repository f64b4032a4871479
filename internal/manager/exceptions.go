package manager

import (
	"context"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/controllers/exceptions"
	"github.com/ostiary/ostiary/controllers/sources"
	entries "github.com/ostiary/ostiary/internal/exceptions"
)

// newExceptions returns the exceptions of policies, and adds what reads them.
func newExceptions(p process) (*exceptions.Store, error) {
	store, err := exceptions.NewStore(exceptions.Options{
		REST:       p.client.CoreV1().RESTClient(),
		Log:        p.log.WithName("exceptions"),
		Registerer: ctrlmetrics.Registry,
	})
	if err != nil {
		return nil, err
	}
	return store, p.add(store)
}

// newExceptionStatus returns what writes the statuses of exceptions on the leader.
func newExceptionStatus(p process, set policySet, objects *sources.Sources) *exceptions.Leader {
	return &exceptions.Leader{
		Client:     p.manager.GetClient(),
		Store:      set.exceptions,
		Policies:   set.store,
		Compiler:   func() entries.Compiler { return objects.Versions.Compiler() },
		Live:       p.replicas.Live,
		Peers:      p.peers,
		Changes:    []func(context.Context) <-chan struct{}{p.replicas.Subscribe},
		Events:     p.manager.GetEventRecorder("ostiary"),
		Log:        p.log.WithName("exceptions"),
		Registerer: ctrlmetrics.Registry,
	}
}
