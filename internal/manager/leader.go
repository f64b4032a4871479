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
	"github.com/ostiary/ostiary/controllers/configurations"
	"github.com/ostiary/ostiary/controllers/leadership"
	"github.com/ostiary/ostiary/controllers/status"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/validation"
)

// addLeader adds the tasks of the leader: certificates, configurations and statuses.
func (r *replica) addLeader() error {
	recorder := r.manager.GetEventRecorder("ostiary")
	prober := canary.NewProber(canary.Options{
		Client:        r.manager.GetClient(),
		Config:        r.config,
		Namespace:     r.options.Namespace,
		Bundle:        r.provider.Bundle,
		BundleChanged: r.provider.Subscribe(context.Background()),
		Events:        recorder,
		Log:           r.log.WithName("canary"),
		Registerer:    ctrlmetrics.Registry,
	})
	gate := &configurations.ReplicaGate{Live: r.replicas.Live, Subscribe: r.replicas.Subscribe, Self: r.identity}
	register := &configurations.Reconciler{
		Client:     r.manager.GetClient(),
		Live:       r.manager.GetAPIReader(),
		Store:      r.store,
		Refusals:   &r.refusals,
		Conflicts:  configurations.NewConflictTracker(ctrlmetrics.Registry),
		Clock:      clock.RealClock{},
		Own:        r.ownConfigurations,
		Proof:      prober,
		Namespace:  r.options.Namespace,
		Gate:       gate,
		Registered: configurations.NewGauge(ctrlmetrics.Registry),
		FailClosed: configurations.NewFailClosed(ctrlmetrics.Registry),

		RefusedConditions: configurations.NewRefusedConditions(ctrlmetrics.Registry),
	}
	report := &status.Reconciler{
		Client: r.manager.GetClient(),
		Store:  r.store,
		Events: recorder,
		Clock:  clock.RealClock{},

		Warnings: r.warnings,
		Sources: []status.Source{
			status.Backends(r.backends),
			status.Params(r.sources.Params),
			status.PluginObjects(r.sources.PluginObjects),
			status.Images(r.sources.Images),
			status.Schemas(r.sources.Schemas),
			status.Types(r.sources.Types),
			status.Resources(r.sources.Resources, r.store),
			status.Conflicts(register.Conflicts),
			status.Replicas(gate),
			status.Canary(prober),
			status.Certificate(r.rotator),
		},
	}
	tasks := []func(context.Context) error{r.rotator.Run, r.sources.Types.Run, r.backends.Run, r.replicas.Sweep, prober.Run}
	if r.options.Audit.Interval > 0 {
		scanner, err := r.newScanner()
		if err != nil {
			return err
		}
		report.Sources = append(report.Sources, status.Audit(scanner))
		tasks = append(tasks, scanner.Run)
	}
	r.elector = &leadership.Elector{
		Client:    r.client,
		Namespace: r.options.Namespace,
		Identity:  r.host + "_" + uuid.NewString(),
		Disabled:  !r.options.LeaderElect,
		Lead: func(ctx context.Context) error {
			return r.lead(ctx, tasks,
				[]func(cache.Cache, logr.Logger) (controller.Controller, error){register.Controller, report.Controller})
		},
		Log: r.log.WithName("leadership"),
	}
	return r.add(r.elector)
}

// newScanner returns the audit of stored objects.
func (r *replica) newScanner() (*audit.Scanner, error) {
	var native *audit.Native
	if r.options.Audit.Native {
		native = &audit.Native{Compiler: r.sources.Versions.Compiler, NewParams: r.sources.NewParams}
	}
	return audit.New(audit.Options{
		Config:           r.config,
		Namespace:        r.options.Namespace,
		Store:            r.store,
		Params:           r.sources.Params,
		Resources:        r.sources.Resources,
		Requests:         r.findings,
		Native:           native,
		ExemptNamespaces: r.loader.ExemptNamespaces,
		Interval:         r.options.Audit.Interval,
		Lines:            r.options.Audit.Results,
		Log:              r.log.WithName("audit"),
		Registerer:       ctrlmetrics.Registry,
	})
}

// lead runs tasks and controllers until ctx ends or one of them fails.
func (r *replica) lead(ctx context.Context, tasks []func(context.Context) error, controllers []func(cache.Cache, logr.Logger) (controller.Controller, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range tasks {
		group.Go(func() error { return run(ctx) })
	}
	for _, build := range controllers {
		c, err := build(r.manager.GetCache(), r.log.WithName("leader"))
		if err != nil {
			return err
		}
		group.Go(func() error { return c.Start(ctx) })
	}
	return group.Wait()
}

// warnings returns the risks of a policy, which its status repeats. A single
// replica is not a property of the policy.
func (r *replica) warnings(p *v1alpha1.WebhookPolicy) []string {
	facts := r.reviewer.Facts()
	facts.Replicas = 0
	return validation.Warnings(p, facts)
}

// ownConfigurations returns the configurations of the canaries and of the webhook
// that validates WebhookPolicies.
func (r *replica) ownConfigurations(ctx context.Context) ([]registration.Configuration, error) {
	owner, err := r.definition(ctx)
	if err != nil {
		return nil, err
	}
	epoch := r.provider.TrustEpoch() // first, so that it is never ahead of the bundle
	own := registration.Own{Endpoint: r.endpoint, Capability: r.provider.Path(), CABundle: r.provider.Bundle(), Epoch: epoch, Owner: owner}
	configs := []registration.Configuration{
		own.Canary(registration.PhaseMutate, r.options.Namespace),
		own.Canary(registration.PhaseValidate, r.options.Namespace),
	}
	if r.options.PolicyWebhook {
		configs = append(configs, own.Review())
	}
	return configs, nil
}

// definition returns the CustomResourceDefinition of WebhookPolicies as an owner.
func (r *replica) definition(ctx context.Context) (metav1.OwnerReference, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	name := "webhookpolicies." + v1alpha1.GroupName
	if err := r.manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("getting the CustomResourceDefinition %s, the owner of the configurations for Ostiary itself: %w", name, err)
	}
	if crd.DeletionTimestamp != nil {
		return metav1.OwnerReference{}, fmt.Errorf("the CustomResourceDefinition %s is being deleted", name)
	}
	return metav1.OwnerReference{APIVersion: crd.APIVersion, Kind: crd.Kind, Name: name, UID: crd.UID}, nil
}
