// Package resources knows which resources the API server has, of which kinds
// they are, and which are other names of the same objects. It runs on every
// replica; what it knows is read without any call.
package resources

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/controllers/internal/events"
)

const (
	// poll is how often the API server is asked while a policy needs to know.
	poll = 30 * time.Second
	// atMost is the shortest time between two times that it is asked.
	atMost = 2 * time.Second
)

// Discovery finds resources. It must be of the kind that is not aggregated: only
// that tells what resources are stored as.
type Discovery interface {
	ServerGroupsWithContext(ctx context.Context) (*metav1.APIGroupList, error)
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Resources are those of one API server. They implement
// runtime.EquivalentResourceMapper and manager.Runnable.
type Resources struct {
	discovery Discovery
	log       logr.Logger
	listeners events.Broadcaster
	current   atomic.Pointer[snapshot] // nil until they have been read once
	version   atomic.Uint64            // of current
	needed    atomic.Bool
	wake      chan struct{}

	reading chan struct{} // held by who reads
	readAt  time.Time     // when the last reading of them all began
}

var _ runtime.EquivalentResourceMapper = (*Resources)(nil)

// New makes resources that are not known yet.
func New(d Discovery, log logr.Logger) *Resources {
	return &Resources{discovery: d, log: log, wake: make(chan struct{}, 1), reading: make(chan struct{}, 1)}
}

// Start implements manager.Runnable: it reads the resources, and reads them
// again until ctx ends, as long as a policy needs them.
func (r *Resources) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.wake:
			asked = true
		}
		if asked || r.needed.Load() || r.current.Load() == nil {
			_ = r.update(ctx, time.Now()) // it has been logged, and is tried again
		}
		next := poll
		if r.current.Load() == nil {
			next = atMost
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(atMost):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica
// answers requests.
func (r *Resources) NeedLeaderElection() bool { return false }

// Subscribe gives a channel that receives after each change, until ctx ends.
func (r *Resources) Subscribe(ctx context.Context) <-chan struct{} { return r.listeners.Subscribe(ctx) }

// Need says whether any loaded policy needs to know the resources. While one
// does, changes are noticed within 30 seconds.
func (r *Resources) Need(needed bool) {
	if !r.needed.Swap(needed) && needed {
		r.Refresh()
	}
}

// Refresh has the resources read again, within two seconds.
func (r *Resources) Refresh() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Ready is an error until the resources have been read once.
func (r *Resources) Ready() error {
	if r.current.Load() == nil {
		return errors.New("the resources of the API server are not known yet")
	}
	return nil
}

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (r *Resources) EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	s := r.current.Load()
	if s == nil {
		return nil
	}
	return s.mapper.EquivalentResourcesFor(resource, subresource)
}

// KindFor implements runtime.EquivalentResourceMapper. A resource that is not
// known has an empty kind.
func (r *Resources) KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	s := r.current.Load()
	if s == nil {
		return schema.GroupVersionKind{}
	}
	return s.mapper.KindFor(resource, subresource)
}

// Interfaces are admission's interfaces to the kinds of a scheme, with the
// equivalent resources of the API server.
func (r *Resources) Interfaces(scheme *runtime.Scheme) admission.ObjectInterfaces {
	return interfaces{ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme), resources: r}
}

type interfaces struct {
	admission.ObjectInterfaces
	resources *Resources
}

// GetEquivalentResourceMapper implements admission.ObjectInterfaces.
func (i interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return i.resources
}

// Served are the resources by version, nil while they are not known. A version
// that did not answer has nil. They must not be changed.
func (r *Resources) Served() map[schema.GroupVersion][]metav1.APIResource {
	if s := r.current.Load(); s != nil {
		return s.lists
	}
	return nil
}

// Version changes with what Served returns. It is 0 while the resources are not known.
func (r *Resources) Version() uint64 { return r.version.Load() }

// ServedNow is Served as of now: it reads the resources, or waits for a reading
// that began since. It is nil if they cannot be read before ctx ends.
func (r *Resources) ServedNow(ctx context.Context) map[schema.GroupVersion][]metav1.APIResource {
	if err := r.update(ctx, time.Now()); err != nil {
		return nil
	}
	return r.Served()
}

// update reads the resources, unless a reading began after since.
func (r *Resources) update(ctx context.Context, since time.Time) error {
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.readAt.After(since) {
		return nil
	}
	began := time.Now()
	err := r.read(ctx)
	if err == nil {
		r.readAt = began
	}
	return err
}

// read asks the API server, one group version after another. Where one does
// not answer, as that of an aggregated API server that is down, what was known
// of it stays.
func (r *Resources) read(ctx context.Context) error {
	groups, err := r.discovery.ServerGroupsWithContext(ctx)
	if err != nil {
		return r.failed(ctx, fmt.Errorf("listing API groups: %w", err))
	}
	before := r.current.Load()
	lists := map[schema.GroupVersion][]metav1.APIResource{}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			list, err := r.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
			if err != nil {
				_ = r.failed(ctx, fmt.Errorf("listing the resources of %s: %w", gv, err))
				lists[gv] = before.list(gv)
				continue
			}
			lists[gv] = list.APIResources
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if before == nil || !reflect.DeepEqual(before.lists, lists) {
		r.current.Store(newSnapshot(lists))
		r.version.Add(1)
		r.listeners.Notify()
	}
	return nil
}

func (r *Resources) failed(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		r.log.Info("cannot read resources", "error", err.Error())
	}
	return err
}
