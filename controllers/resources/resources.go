// Package resources caches the resources of the API server, their kinds, and which of
// them contain the same objects. It runs on every replica. Reads of the cache cause
// no requests, except for ServedNow.
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
	"github.com/ostiary/ostiary/internal/apiresources"
)

const (
	// pollInterval is the interval of discovery while a policy needs the resources.
	pollInterval = 30 * time.Second
	// minInterval is the shortest time between two discoveries.
	minInterval = 2 * time.Second
)

// Discovery lists resources. It must not use aggregated discovery, which omits the
// storage version hash.
type Discovery interface {
	ServerGroupsWithContext(ctx context.Context) (*metav1.APIGroupList, error)
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Resources caches the resources of one API server. It implements
// runtime.EquivalentResourceMapper and manager.Runnable.
type Resources struct {
	discovery Discovery
	log       logr.Logger
	listeners events.Broadcaster
	current   atomic.Pointer[apiresources.Resources] // nil before the first discovery
	version   atomic.Uint64                          // of current
	needed    atomic.Bool
	wake      events.Signal

	reading chan struct{} // a lock for one discovery at a time
	readAt  time.Time     // start of the last complete discovery
}

var _ runtime.EquivalentResourceMapper = (*Resources)(nil)

// New returns Resources with an empty cache.
func New(d Discovery, log logr.Logger) *Resources {
	return &Resources{discovery: d, log: log, wake: events.NewSignal(), reading: make(chan struct{}, 1)}
}

// Start implements manager.Runnable. It reads the resources once, and then
// periodically while a policy needs them, until ctx ends.
func (r *Resources) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		requested := false
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.wake:
			requested = true
		}
		if requested || r.needed.Load() || r.current.Load() == nil {
			_ = r.update(ctx, time.Now()) // read logs the error, and the next attempt follows
		}
		next := pollInterval
		if r.current.Load() == nil {
			next = minInterval
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(minInterval):
		}
	}
}

// NeedLeaderElection returns false: every replica evaluates requests.
func (r *Resources) NeedLeaderElection() bool { return false }

// Subscribe returns a channel that receives after each change, until ctx ends.
func (r *Resources) Subscribe(ctx context.Context) <-chan struct{} { return r.listeners.Subscribe(ctx) }

// Need sets whether a loaded policy needs the resources. If so, the cache is at most
// 30 seconds old.
func (r *Resources) Need(needed bool) {
	if !r.needed.Swap(needed) && needed {
		r.Refresh()
	}
}

// Refresh starts a discovery within two seconds.
func (r *Resources) Refresh() { r.wake.Send() }

// Ready returns an error before the first discovery.
func (r *Resources) Ready() error {
	if r.current.Load() == nil {
		return errors.New("the resources of the API server have not been read yet")
	}
	return nil
}

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (r *Resources) EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	s := r.current.Load()
	if s == nil {
		return nil
	}
	return s.EquivalentResourcesFor(resource, subresource)
}

// KindFor implements runtime.EquivalentResourceMapper. The kind of an unknown
// resource is empty.
func (r *Resources) KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	s := r.current.Load()
	if s == nil {
		return schema.GroupVersionKind{}
	}
	return s.KindFor(resource, subresource)
}

// Interfaces returns admission's interfaces to the kinds of a scheme, with the
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

// Served returns the resources by group version; nil before the first discovery. The
// list of a group version whose discovery failed is nil. Callers must not change it.
func (r *Resources) Served() map[schema.GroupVersion][]metav1.APIResource {
	if s := r.current.Load(); s != nil {
		return s.Lists()
	}
	return nil
}

// Version changes with the result of Served. It is 0 before the first discovery.
func (r *Resources) Version() uint64 { return r.version.Load() }

// ServedNow returns Served from a discovery that starts after the call. It returns
// nil if that fails or ctx ends first.
func (r *Resources) ServedNow(ctx context.Context) map[schema.GroupVersion][]metav1.APIResource {
	if err := r.update(ctx, time.Now()); err != nil {
		return nil
	}
	return r.Served()
}

// update reads the resources, unless a discovery started after since.
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

// read lists the resources of each group version in turn. If one fails, for example
// because an aggregated API server is down, its cached resources remain.
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
				lists[gv] = listOf(before, gv)
				continue
			}
			lists[gv] = list.APIResources
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if before == nil || !reflect.DeepEqual(before.Lists(), lists) {
		r.current.Store(apiresources.New(lists))
		r.version.Add(1)
		r.listeners.Notify()
	}
	return nil
}

func (r *Resources) failed(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		r.log.Info("discovery of resources failed", "error", err.Error())
	}
	return err
}
