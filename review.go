package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/configurations"
	"github.com/ostiary/ostiary/controllers/policyvalidator"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/validation"
)

// addReview adds what reviews policies. It shares its compiler with the loader,
// so that what has been compiled for one need not be for the other.
func (r *replica) addReview() error {
	r.compiler = policy.NewCompiler()
	r.reviewer = policyvalidator.New(r.compiler, r.around.resources, r.alive, r.options.Authors.Backends(), r.log.WithName("review"))
	return nil
}

// alive is how many replicas are, 0 while that is not known.
func (r *replica) alive() int {
	live, err := r.replicas.Live(context.Background())
	if err != nil {
		return 0
	}
	return len(live)
}

// warnings are what is risky about a policy, for those who did not hear of it
// when they applied it. That there is one replica is not about the policy.
func (r *replica) warnings(p *v1alpha1.WebhookPolicy) []string {
	facts := r.reviewer.Facts()
	facts.Replicas = 0
	return validation.Warnings(p, facts)
}

// own is the configuration of the webhook that reviews policies.
func (r *replica) own() (configurations.Own, error) {
	if !r.options.PolicyWebhook {
		return func(context.Context) (registration.Configuration, error) { return nil, nil }, nil
	}
	endpoint, err := endpointOf(r.options)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (registration.Configuration, error) {
		owner, err := r.definition(ctx)
		if err != nil {
			return nil, err
		}
		epoch := r.watcher.TrustEpoch() // first, so that it is never ahead of the bundle
		return registration.NewReview(endpoint, r.watcher.Path(), r.watcher.Bundle(), epoch, owner), nil
	}, nil
}

// definition is the CustomResourceDefinition of policies, as an owner.
func (r *replica) definition(ctx context.Context) (metav1.OwnerReference, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	name := "webhookpolicies." + v1alpha1.GroupName
	if err := r.manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("getting the CustomResourceDefinition %s, which is to own what is registered for Ostiary itself: %w", name, err)
	}
	if crd.DeletionTimestamp != nil {
		return metav1.OwnerReference{}, fmt.Errorf("the CustomResourceDefinition %s is being deleted", name)
	}
	return metav1.OwnerReference{APIVersion: crd.APIVersion, Kind: crd.Kind, Name: name, UID: crd.UID}, nil
}
