package policies

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// observation is what a load depends on. It is read once, so that all steps of the load see
// the same.
type observation struct {
	policies       []*v1alpha1.WebhookPolicy
	configurations []registration.Configuration
	// members are the policies that the configurations name, by call group.
	members  map[registration.GroupKey][]string
	bundles  registration.Bundles // of backends, in the configurations
	compiler *policy.Compiler
	refusals refusedRegistrations
	peers    versionskew.Peers
	// epoch is that of bundle or of an earlier one.
	epoch      int64
	bundle     []byte
	capability string
	// previous is nil at the first load.
	previous *State
}

// observe reads what the next load depends on.
func (l *Loader) observe(ctx context.Context) (*observation, error) {
	policies := l.policies()
	configurations, err := Configurations(ctx, l.Client)
	if err != nil {
		return nil, err
	}
	return l.observation(policies, configurations, l.peers(ctx)), nil
}

// observation adds the rest to objects of the API server.
func (l *Loader) observation(
	policies []*v1alpha1.WebhookPolicy, configurations []registration.Configuration, peers versionskew.Peers,
) *observation {
	l.wantBackends(policies)
	seen := &observation{
		policies:       policies,
		configurations: configurations,
		members:        membersByGroup(configurations),
		bundles:        registration.ObservedBundles(configurations),
		compiler:       l.Compiler(),
		refusals:       l.Refusals.snapshot(),
		peers:          peers,
		previous:       l.Store.State(),
	}
	if l.Epoch != nil {
		seen.epoch = l.Epoch() // before the bundle, so that it is never newer
	}
	seen.bundle = l.Bundle()
	if l.Capability != nil {
		seen.capability = l.Capability()
	}
	return seen
}

// entryBefore returns the entry of a policy in the previous state, nil if there is none.
func (seen *observation) entryBefore(p *v1alpha1.WebhookPolicy) *Entry {
	if seen.previous == nil {
		return nil
	}
	return seen.previous.Entries[p.UID]
}

// named returns the policies that configurations name.
func (seen *observation) named() sets.Set[string] {
	out := sets.New[string]()
	for _, members := range seen.members {
		out.Insert(members...)
	}
	return out
}

// policies lists the policies in the cache. They must not be changed. A List of the
// client would copy each of them.
func (l *Loader) policies() []*v1alpha1.WebhookPolicy {
	objects := l.cached.List()
	out := make([]*v1alpha1.WebhookPolicy, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*v1alpha1.WebhookPolicy); ok {
			out = append(out, p)
		}
	}
	return out
}

// Policies returns the policies in the cache, with their statuses. They must not be changed.
func (l *Loader) Policies() []*v1alpha1.WebhookPolicy { return l.policies() }

// Configurations lists the webhook configurations of both kinds. They belong to the cache
// and must not be changed.
func Configurations(ctx context.Context, reader client.Reader) ([]registration.Configuration, error) {
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := reader.List(ctx, &mutating, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing mutating configurations: %w", err)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := reader.List(ctx, &validating, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing validating configurations: %w", err)
	}
	out := make([]registration.Configuration, 0, len(mutating.Items)+len(validating.Items))
	for i := range mutating.Items {
		out = append(out, &mutating.Items[i])
	}
	for i := range validating.Items {
		out = append(out, &validating.Items[i])
	}
	return out, nil
}

func membersByGroup(configurations []registration.Configuration) map[registration.GroupKey][]string {
	out := make(map[registration.GroupKey][]string, len(configurations))
	for _, config := range configurations {
		if group, ok := registration.GroupOf(config); ok {
			out[group] = registration.Members(config)
		}
	}
	return out
}
