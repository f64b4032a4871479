package manager

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/audit"
	"github.com/ostiary/ostiary/controllers/canary"
	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/configurations"
	"github.com/ostiary/ostiary/controllers/leadership"
	"github.com/ostiary/ostiary/controllers/sources"
	"github.com/ostiary/ostiary/controllers/status"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/validation"
)

// newElector returns what runs the tasks of the leader: certificates, configurations and
// statuses.
func newElector(
	p process, set policySet, objects *sources.Sources, provider *certificates.Provider, rotator *certificates.Rotator,
) (*leadership.Elector, error) {
	prober := canary.NewProber(canary.Options{
		Client:        p.manager.GetClient(),
		Config:        p.config,
		Namespace:     p.options.Namespace,
		Bundle:        provider.Bundle,
		BundleChanged: provider.Subscribe(context.Background()),
		Events:        p.manager.GetEventRecorder("ostiary"),
		Log:           p.log.WithName("canary"),
		Registerer:    ctrlmetrics.Registry,
	})
	register := newRegistrar(p, set, provider, prober)
	observed := []status.Source{
		status.Backends(set.backends),
		status.Params(objects.Params),
		status.PluginObjects(objects.PluginObjects),
		status.Lookups(objects.Lookups, p.peers, p.replicas.Subscribe),
		status.Images(objects.Images),
		status.Schemas(objects.Schemas),
		status.Types(objects.Types),
		status.Resources(objects.Resources, set.store),
		status.Conflicts(register.Conflicts),
		status.Replicas(register.Gate),
		status.Canary(prober),
		status.Certificate(rotator),
	}
	tasks := []func(context.Context) error{
		rotator.Run, objects.Types.Run, set.backends.Run, p.replicas.Sweep, prober.Run, newExceptionStatus(p, set, objects).Run,
	}
	if p.options.Audit.Interval > 0 {
		scanner, err := newScanner(p, set, objects)
		if err != nil {
			return nil, err
		}
		observed = append(observed, status.Audit(scanner))
		tasks = append(tasks, scanner.Run)
	}
	report := &status.Reconciler{
		Client:   p.manager.GetClient(),
		Store:    set.store,
		Events:   p.manager.GetEventRecorder("ostiary"),
		Clock:    clock.RealClock{},
		Sources:  observed,
		Warnings: set.warnings,
	}
	return &leadership.Elector{
		Client:    p.client,
		Namespace: p.options.Namespace,
		Identity:  p.host + "_" + uuid.NewString(),
		Disabled:  !p.options.LeaderElect,
		Lead:      func(ctx context.Context) error { return p.lead(ctx, tasks, register.Controller, report.Controller) },
		Log:       p.log.WithName("leadership"),
	}, nil
}

// newRegistrar returns what writes webhook configurations.
func newRegistrar(
	p process, set policySet, provider *certificates.Provider, proof configurations.Proof,
) configurations.Dependencies {
	return configurations.Dependencies{
		Client:    p.manager.GetClient(),
		Live:      p.manager.GetAPIReader(),
		Store:     set.store,
		Refusals:  set.refusals,
		Conflicts: configurations.NewConflictTracker(ctrlmetrics.Registry),
		Clock:     clock.RealClock{},
		Own:       ownConfigurations(p, provider),
		Proof:     proof,
		Namespace: p.options.Namespace,
		Gate:      &configurations.ReplicaGate{Live: p.replicas.Live, Subscribe: p.replicas.Subscribe, Self: p.identity, Version: p.version},
		Metrics:   configurations.NewMetrics(ctrlmetrics.Registry),
	}
}

// newScanner returns the audit of stored objects.
func newScanner(p process, set policySet, objects *sources.Sources) (*audit.Scanner, error) {
	var native *audit.Native
	if p.options.Audit.Native {
		native = &audit.Native{Compiler: objects.Versions.Compiler, NewParams: objects.NewParams}
	}
	return audit.New(audit.Options{
		Config:           p.config,
		Namespace:        p.options.Namespace,
		Store:            set.store,
		Params:           objects.Params,
		Resources:        objects.Resources,
		Exceptions:       set.exceptions,
		Lookups:          objects.Lookups,
		Requests:         p.findings,
		Native:           native,
		ExemptNamespaces: set.loader.ExemptNamespaces,
		Interval:         p.options.Audit.Interval,
		Lines:            p.options.Audit.Results,
		Log:              p.log.WithName("audit"),
		Registerer:       ctrlmetrics.Registry,
	})
}

// lead runs tasks and controllers until ctx ends or one of them fails.
func (p process) lead(
	ctx context.Context, tasks []func(context.Context) error,
	controllers ...func(cache.Cache, logr.Logger) (controller.Controller, error),
) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range tasks {
		group.Go(func() error { return run(ctx) })
	}
	for _, build := range controllers {
		c, err := build(p.manager.GetCache(), p.log.WithName("leader"))
		if err != nil {
			return err
		}
		group.Go(func() error { return c.Start(ctx) })
	}
	return group.Wait()
}

// warnings returns the risks of a policy, which its status repeats. A single
// replica is not a property of the policy.
func (s policySet) warnings(p *v1alpha1.WebhookPolicy) []string {
	facts := s.reviewer.Facts()
	facts.Replicas = 0
	return validation.Warnings(p, facts)
}

// ownConfigurations returns the function that returns the configurations of the canaries
// and of the webhook that validates WebhookPolicies.
func ownConfigurations(p process, provider *certificates.Provider) configurations.Own {
	return func(ctx context.Context) ([]registration.Configuration, error) {
		owner, err := p.definition(ctx)
		if err != nil {
			return nil, err
		}
		epoch := provider.TrustEpoch() // first, so that it is never ahead of the bundle
		own := registration.Own{
			Endpoint: p.endpoint, Capability: provider.Path(), CABundle: provider.Bundle(), Epoch: epoch, Owner: owner,
		}
		configs := []registration.Configuration{
			own.Canary(registration.PhaseMutate, p.options.Namespace),
			own.Canary(registration.PhaseValidate, p.options.Namespace),
		}
		if p.options.PolicyWebhook {
			configs = append(configs, own.Review())
		}
		return configs, nil
	}
}

// definition returns the CustomResourceDefinition of WebhookPolicies as an owner.
func (p process) definition(ctx context.Context) (metav1.OwnerReference, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	name := "webhookpolicies." + v1alpha1.GroupName
	if err := p.manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("getting the CustomResourceDefinition %s, the owner of the configurations for Ostiary itself: %w", name, err)
	}
	if crd.DeletionTimestamp != nil {
		return metav1.OwnerReference{}, fmt.Errorf("the CustomResourceDefinition %s is being deleted", name)
	}
	return metav1.OwnerReference{APIVersion: crd.APIVersion, Kind: crd.Kind, Name: name, UID: crd.UID}, nil
}
