package policies

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/rollout"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// versions returns the changes that a list contains: the cache gets those of one resource in
// their order. No version decreases when the object that changed last is deleted.
func (seen *observation) versions() versionskew.Vector {
	var versions versionskew.Vector
	if seen.previous != nil {
		versions = seen.previous.Versions
	}
	return withPolicies(versions, seen.policies)
}

func withPolicies(versions versionskew.Vector, policies []*v1alpha1.WebhookPolicy) versionskew.Vector {
	for _, p := range policies {
		versions = versions.With(versionskew.Policies, p.ResourceVersion)
	}
	return versions
}

// Report returns what this replica has loaded and what it knows. Changes of statuses increase
// the versions without a load. All parts are from one state: a replica that withholds a
// generation never reports that it has loaded it without saying so. If the cache has a policy
// that is not loaded, the loader loads it: informers send no event if only the unknown fields
// of a policy have changed.
func (l *Loader) Report() versionskew.Report {
	report := versionskew.Report{Known: l.Version.Text}
	state := l.Store.State()
	if state == nil {
		return report
	}
	report.Withheld = state.withheld
	report.Loaded = state.Versions
	policies := l.policies()
	for _, p := range policies {
		if e := state.Entries[p.UID]; e == nil || !e.isEffectOf(p) {
			l.notLoaded.Notify()
			return report
		}
	}
	report.Loaded = withPolicies(state.Versions, policies)
	return report
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
	if err := state.holds(list); err != nil {
		return err
	}
	if !state.hasRollouts() {
		return nil
	}
	return state.holdsSteps(list, l.policies())
}

func (s *State) hasRollouts() bool {
	for _, e := range s.Entries {
		if rollout.Has(&e.Policy.Spec) {
			return true
		}
	}
	return false
}

// holdsSteps returns an error if the state may lack a step of a rollout in the list: steps are in statuses, so the cache has to
// be as new as the list.
func (s *State) holdsSteps(list *metav1.PartialObjectMetadataList, cached []*v1alpha1.WebhookPolicy) error {
	listed := make(map[types.UID]string, len(list.Items))
	for i := range list.Items {
		listed[list.Items[i].UID] = list.Items[i].ResourceVersion
	}
	for _, p := range cached {
		version, ok := listed[p.UID]
		if ok && rollout.Has(&p.Spec) && (!versionskew.Reached(p.ResourceVersion, version) || !s.Entries[p.UID].isEffectOf(p)) {
			return fmt.Errorf("the step of a rollout of policy %s has not been loaded yet", p.Name)
		}
	}
	return nil
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
			all.Items = append(all.Items, metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, Generation: p.Generation, ResourceVersion: p.ResourceVersion},
			})
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
		if _, ok := listed[uid]; !ok && versionskew.Reached(list.ResourceVersion, e.LoadedVersion()) {
			return fmt.Errorf("policy %s was deleted and is still loaded", e.Policy.Name)
		}
	}
	return nil
}
