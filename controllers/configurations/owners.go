package configurations

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// maxOwners bounds the owners of one configuration that a reconcile looks up in the
// API server.
const maxOwners = 10

// withoutDeletedOwners removes from the plan the owner references that garbage
// collection has removed from configurations because their policies are deleted. The
// plan still has these policies until this replica sees that they are deleted.
// Restoring their owner references would look like a conflict with the garbage
// collector, which would remove them again.
func (t *term) withoutDeletedOwners(ctx context.Context, p *pass, plan registration.Plan) (registration.Plan, error) {
	copied := false
	for i := range plan.Groups {
		want := plan.Groups[i].Configuration
		have := p.observed[registration.KeyOf(want)]
		if have == nil || !t.isRepair(want) {
			continue
		}
		deleted, err := t.deletedOwners(ctx, want, have)
		if err != nil {
			return registration.Plan{}, err
		}
		if len(deleted) == 0 {
			continue
		}
		if !copied { // replicas share the plan with requests
			plan.Groups, copied = slices.Clone(plan.Groups), true
		}
		plan.Groups[i].Configuration = registration.WithoutOwners(want, deleted)
	}
	return plan, nil
}

// deletedOwners returns the owners that a configuration lacks and that are deleted.
// Beyond maxOwners, it does not look them up and counts them as deleted. The next
// reconcile restores those that exist.
func (t *term) deletedOwners(
	ctx context.Context, want, have registration.Configuration,
) ([]metav1.OwnerReference, error) {
	present := map[types.UID]bool{}
	for _, owner := range have.GetOwnerReferences() {
		present[owner.UID] = true
	}
	var deleted []metav1.OwnerReference
	lookedUp := 0
	for _, owner := range want.GetOwnerReferences() {
		if present[owner.UID] {
			continue
		}
		if lookedUp++; lookedUp <= maxOwners {
			policy, err := t.owner(ctx, want, owner)
			if err != nil {
				return nil, err
			}
			if policy != nil && policy.DeletionTimestamp.IsZero() {
				continue
			}
		}
		deleted = append(deleted, owner)
	}
	return deleted, nil
}

// isOrphan reports whether all policies that own a configuration are deleted. It
// is checked before a configuration is created: garbage collection deletes
// configurations together with their policies, and this replica may see the
// former deletion first. A configuration that is created again would call
// Ostiary for policies that no longer exist. Beyond maxOwners a configuration counts
// as an orphan until the next reconcile.
func (t *term) isOrphan(ctx context.Context, want registration.Configuration) (bool, error) {
	owners := want.GetOwnerReferences()
	for _, owner := range owners[:min(len(owners), maxOwners)] {
		if policy, err := t.owner(ctx, want, owner); policy != nil || err != nil {
			return false, err
		}
	}
	return len(owners) > 0, nil
}

// owner reads the policy of an owner reference from the API server. It is nil if the
// policy is deleted.
func (t *term) owner(
	ctx context.Context, of registration.Configuration, owner metav1.OwnerReference,
) (*metav1.PartialObjectMetadata, error) {
	policy := &metav1.PartialObjectMetadata{}
	policy.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
	switch err := t.Live.Get(ctx, client.ObjectKey{Name: owner.Name}, policy); {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("getting policy %s, an owner of configuration %s: %w", owner.Name, of.GetName(), err)
	case policy.UID != owner.UID: // empty if the policy does not exist
		return nil, nil
	}
	return policy, nil
}
