package policies

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// peerInterval is the time until the loader looks again for replicas that a policy waits for.
// That a Lease has expired sends no notification.
const peerInterval = time.Second

// peers returns the other replicas. Until their Leases have been read there are none: the leader
// registers nothing then, and this replica has no previous generation to use instead.
func (l *Loader) peers(ctx context.Context) versionskew.Peers {
	if l.Peers == nil {
		return versionskew.Peers{}
	}
	peers, err := l.Peers(ctx)
	if err != nil {
		return versionskew.Peers{}
	}
	return peers
}

// peersChanged returns a channel that receives when a replica that knows other fields starts or
// ends. Replicas report each load, so a load after each report would not end.
func (l *Loader) peersChanged(ctx context.Context) <-chan struct{} {
	if l.ReportsChanged == nil {
		return nil
	}
	var changed events.Broadcaster
	out := changed.Subscribe(ctx)
	reports := l.ReportsChanged(ctx)
	known := l.peers(ctx).Known()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-reports:
			}
			if now := l.peers(ctx).Known(); now != known {
				known = now
				changed.Notify()
			}
		}
	}()
	return out
}

// skew returns why the latest generation of a policy has to wait: a replica does not know all of
// its fields. It is empty if all do.
func (seen *observation) skew(p *v1alpha1.WebhookPolicy) string {
	if len(p.UnknownFields) > 0 {
		return versionskew.UnknownHere(p.UnknownFields)
	}
	_, why := seen.peers.Unknown(&p.Spec)
	return why
}

// withheldFields returns the fields for which this replica does not use the latest generation of
// policies, because another replica does not know them.
func (seen *observation) withheldFields(entries map[types.UID]*Entry) string {
	withheld := sets.New[string]()
	for _, p := range seen.policies {
		if e := entries[p.UID]; e.Skew == "" || e.Choice == ChooseLatest {
			continue
		}
		fields, _ := seen.peers.Unknown(&p.Spec)
		withheld.Insert(fields...)
	}
	return strings.Join(sets.List(withheld), ",")
}

// peerInterval returns when to look for replicas again, 0 if no policy waits for one.
func (s *State) peerInterval() time.Duration {
	for _, e := range s.Entries {
		if e.Skew != "" {
			return peerInterval
		}
	}
	return 0
}

// whyPlaceholder returns the errors that the requests of a placeholder get.
func whyPlaceholder(p *v1alpha1.WebhookPolicy) field.ErrorList {
	if len(p.UnknownFields) == 0 {
		const problem = "the CA bundle of the backend is not known yet"
		return field.ErrorList{field.Required(field.NewPath("spec", "backend"), problem)}
	}
	var out field.ErrorList
	for _, path := range p.UnknownFields {
		const problem = "this replica of Ostiary does not know the field: upgrade it, or remove the field"
		out = append(out, field.Forbidden(field.NewPath(path), problem))
	}
	return out
}
