package policies

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// version returns the resource version up to which a list contains every change: the
// cache gets changes in their order. It does not decrease when the policy that changed
// last is deleted.
func (seen *observation) version() string {
	version := ""
	if seen.previous != nil {
		version = seen.previous.Version
	}
	return latestVersion(version, seen.policies)
}

func latestVersion(version string, policies []*v1alpha1.WebhookPolicy) string {
	for _, p := range policies {
		if v := p.ResourceVersion; !Reached(version, v) {
			version = v
		}
	}
	return version
}

// Reached reports whether a replica that has loaded all changes up to version have has
// loaded version want. It is false for versions that cannot be compared.
func Reached(have, want string) bool {
	order, err := resourceversion.CompareResourceVersion(have, want)
	return err == nil && order >= 0
}

// Version returns the resource version up to which this replica has loaded every change
// of a policy, empty if it has loaded none. Changes of statuses increase it without a
// load.
func (l *Loader) Version() string {
	state := l.Store.State()
	if state == nil {
		return ""
	}
	policies := l.policies()
	for _, p := range policies {
		if e := state.Entries[p.UID]; e == nil || e.Policy.Generation != p.Generation {
			return state.Version
		}
	}
	return latestVersion(state.Version, policies)
}

// Current returns an error while this replica has not loaded the policies that the API
// server holds now. It does not use the cache, whose watch may have lost its connection
// unnoticed.
func (l *Loader) Current(ctx context.Context, live client.Reader) error {
	list, err := liveVersions(ctx, live)
	if err != nil {
		return err
	}
	state := l.Store.State()
	if state == nil {
		return errors.New("no policies have been loaded yet")
	}
	return state.holds(list)
}

// pageSize limits the memory for reading all policies: their managed fields alone take 2 KB
// each.
const pageSize = 1000

// liveVersions reads the names, UIDs and generations of all policies from the API server.
func liveVersions(ctx context.Context, live client.Reader) (*metav1.PartialObjectMetadataList, error) {
	all := &metav1.PartialObjectMetadataList{}
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookPolicyList"))
		if err := live.List(ctx, page, client.Limit(pageSize), client.Continue(all.Continue)); err != nil {
			return nil, fmt.Errorf("listing policies past the cache: %w", err)
		}
		for i := range page.Items {
			p := &page.Items[i]
			all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, Generation: p.Generation}})
		}
		if all.ListMeta = page.ListMeta; all.Continue == "" {
			return all, nil
		}
	}
}

// holds returns an error if the state lacks a generation in the list, or has a policy
// that was deleted before the list was made.
func (s *State) holds(list *metav1.PartialObjectMetadataList) error {
	listed := make(map[types.UID]struct{}, len(list.Items))
	for i := range list.Items {
		p := &list.Items[i]
		listed[p.UID] = struct{}{}
		if e := s.Entries[p.UID]; e == nil || e.Policy.Generation < p.Generation {
			return fmt.Errorf("generation %d of policy %s has not been loaded yet", p.Generation, p.Name)
		}
	}
	for uid, e := range s.Entries {
		if _, ok := listed[uid]; !ok && Reached(list.ResourceVersion, e.LoadedVersion()) {
			return fmt.Errorf("policy %s was deleted and is still loaded", e.Policy.Name)
		}
	}
	return nil
}
