package manager

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/controllers/backends"
	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/exceptions"
	"github.com/ostiary/ostiary/controllers/lookups"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/policyvalidator"
	"github.com/ostiary/ostiary/controllers/sources"
	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/options"
)

// newSources returns the objects that evaluations read, and adds what reads them.
func newSources(p process) (*sources.Sources, error) {
	objects, err := sources.New(sources.Options{
		Config:        p.config,
		Client:        p.client,
		Namespace:     p.options.Namespace,
		ParamsAccount: p.options.Authors.ParamsAccount,
		CacheMemory:   p.options.Load.CacheMemory.Value(),
		Lookups:       lookupOptions(p.options),
		Log:           p.log,
		Registerer:    ctrlmetrics.Registry,
	})
	if err != nil {
		return nil, err
	}
	// Namespaces are read on the admission path, so they are watched from the start.
	_, err = p.manager.GetCache().GetInformer(context.Background(), &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching namespaces: %w", err)
	}
	return objects, p.add(objects.Runnables()...)
}

// lookupOptions returns the limits of lookups.
func lookupOptions(o options.Options) lookups.Options {
	return lookups.Options{
		Entries: int64(o.Lookups.Entries), Memory: cmp.Or(o.Lookups.Memory.Value(), options.DefaultLookupMemory), MaxAge: o.Lookups.MaxAge,
		Sensitive: o.Sensitive(),
	}
}

// policySet is what compiles, keeps and evaluates policies.
type policySet struct {
	store    *policies.Store
	loader   *policies.Loader
	refusals *policies.Refusals
	backends *backends.Store
	reviewer *policyvalidator.Reviewer
	counts   *violations.Counts

	exceptions *exceptions.Store
}

// newPolicySet returns a policySet, and adds its loader. The reviewer and the loader share
// a compiler, so that they do not compile the same policy twice.
func newPolicySet(
	p process, store *policies.Store, objects *sources.Sources, provider *certificates.Provider,
) (policySet, error) {
	counts := violations.NewCounts()
	violated, err := newViolationReports(p, counts)
	if err != nil {
		return policySet{}, err
	}
	measured := metrics.NewPolicies(ctrlmetrics.Registry)
	excepted, err := newExceptions(p)
	if err != nil {
		return policySet{}, err
	}
	environment, err := newEnvironment(p, objects, measured, violated)
	if err != nil {
		return policySet{}, err
	}
	environment.Exceptions, environment.Excepted = excepted, excepted.Excepted
	store.Host = environment
	exempt := append([]string{p.options.Namespace}, p.options.ExemptNamespaces...)
	impact, err := policyvalidator.NewImpact(p.config, p.options.Namespace, exempt, environment)
	if err != nil {
		return policySet{}, err
	}
	rule := p.options.Authors.Backends()
	external := backends.New(backends.Options{
		Client:     p.client,
		Namespace:  p.options.Namespace,
		Rule:       rule,
		Log:        p.log.WithName("backends"),
		Registerer: ctrlmetrics.Registry,
	})
	refusals := &policies.Refusals{}
	loader := &policies.Loader{
		Client:           p.manager.GetClient(),
		Store:            store,
		Compiler:         objects.Versions.Compiler,
		CompilerChanged:  objects.Versions.Subscribe,
		Metrics:          measured,
		Endpoint:         p.endpoint,
		ExemptNamespaces: exempt,
		Prepare:          objects.Prepare,
		Backends:         external,
		BackendRule:      rule,
		Refusals:         refusals,
		Version:          p.version,
		Peers:            p.peers,
		ReportsChanged:   p.replicas.Subscribe,
		Bundle:           provider.Bundle,
		Capability:       provider.Path,
		Epoch:            provider.TrustEpoch,
		BundleChanged:    provider.Subscribe(context.Background()),
	}
	if err := loader.SetupWithManager(p.manager); err != nil {
		return policySet{}, err
	}
	reviewer := policyvalidator.New(objects.Versions.Compiler, objects.Resources, p.liveCount, rule,
		p.log.WithName("review"), impact, objects.Checks()...)
	reviewer.Rehearse = objects.Types.Rehearse
	return policySet{store, loader, refusals, external, reviewer, counts, excepted}, nil
}
