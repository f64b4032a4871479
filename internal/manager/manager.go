// Package manager connects the controllers and the webhook server, and runs them as one
// replica.
package manager

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/leadership"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/webhooks"
)

// replica is one process of Ostiary.
type replica struct {
	manager manager.Manager
	rotator *certificates.Rotator
	server  *webhooks.Server
	elector *leadership.Elector
}

// Run serves until ctx ends and the server has drained.
func Run(ctx context.Context, o options.Options, version string, log logr.Logger) error {
	config, err := RESTConfig(o.Kubeconfig, version)
	if err != nil {
		return err
	}
	r, err := newReplica(ctx, config, o, log)
	if err != nil {
		return err
	}
	if err := r.rotator.Permitted(ctx); err != nil {
		return err
	}
	// The server drains first and needs everything else until it has. Another
	// replica may become the leader meanwhile.
	r.elector.Until = ctx.Done()
	managing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stop()
		return r.server.Start(serving)
	})
	group.Go(func() error {
		err := r.manager.Start(managing)
		if err == nil && serving.Err() == nil {
			err = errors.New("the manager stopped before the webhook server")
		}
		return err
	})
	return group.Wait()
}

// RESTConfig returns the configuration of clients of the API server: from the
// file, or else from $KUBECONFIG, or else from the Pod's ServiceAccount.
func RESTConfig(kubeconfig, version string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.QPS = -1 // the API server's priority and fairness limits requests
	config.UserAgent = "ostiary/" + version
	return config, nil
}

// newReplica connects the parts of a replica. Each constructor takes the parts that it
// uses, so that none of them is used before it exists.
func newReplica(ctx context.Context, config *rest.Config, o options.Options, log logr.Logger) (*replica, error) {
	tuneCollector() // before the first objects are read
	store := &policies.Store{}
	p, err := newProcess(ctx, config, o, log, store.Compact)
	if err != nil {
		return nil, err
	}
	provider, rotator, err := newCertificates(p)
	if err != nil {
		return nil, err
	}
	if err := serveMetrics(p, provider); err != nil {
		return nil, err
	}
	objects, err := newSources(p)
	if err != nil {
		return nil, err
	}
	set, err := newPolicySet(p, store, objects, provider)
	if err != nil {
		return nil, err
	}
	callers, err := newAuthenticator(p)
	if err != nil {
		return nil, err
	}
	server, err := newServer(p, set, provider, callers)
	if err != nil {
		return nil, err
	}
	elector, err := newElector(p, set, objects, provider, rotator)
	if err != nil {
		return nil, err
	}
	err = serveProbes(p, map[string]func() error{
		"policies":     store.Loaded,
		"params":       func() error { return errors.Join(objects.Params.Ready(), objects.PluginObjects.Ready()) },
		"lookups":      objects.Lookups.Ready,
		"resources":    objects.Resources.Ready,
		"schemas":      objects.Schemas.Ready,
		"certificates": provider.Ready,
		"lease":        p.lease.Ready,
		"server":       func() error { return server.Ready(nil) },
		"callers":      callers.Ready,
		"exceptions":   set.exceptions.Ready,
	})
	if err != nil {
		return nil, err
	}
	if err := p.add(newReporter(p, set, objects, provider), elector, p.replicas); err != nil {
		return nil, err
	}
	return &replica{manager: p.manager, rotator: rotator, server: server, elector: elector}, nil
}
