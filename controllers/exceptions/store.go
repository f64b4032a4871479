// Package exceptions reads the exceptions of policies on every replica, and writes their status on
// the leader. A replica applies none while the admission policy that checks who may write them is
// missing or changed, or while it does not hear from the API server.
package exceptions

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/versionskew"
)

const (
	// maxSilence is how long exceptions stay in effect after the API server has confirmed them last.
	maxSilence = 30 * time.Second
	// readyTimeout is how long a starting replica stays unready because of exceptions.
	readyTimeout = time.Minute
)

// Options configures a Store.
type Options struct {
	REST rest.Interface
	Log  logr.Logger
	// Registerer registers the metrics; nil disables them.
	Registerer prometheus.Registerer
}

// Store has the exceptions of this replica. It implements policy.Exceptions and manager.Runnable.
type Store struct {
	options   Options
	limits    limits
	known     versionskew.Fields
	listeners events.Broadcaster
	started   atomic.Pointer[time.Time]
	index     atomic.Pointer[exceptions.Index]
	guards    []*guard
	uses      uses

	mu          sync.Mutex
	spaces      map[string]*space // by namespace
	used        int64
	collections []*collection
	excluded    chan *record // for the leader
}

// limits bound the estimated memory of exceptions, in bytes.
type limits struct{ total, namespace, cluster int64 }

// NewStore returns a Store that has read nothing yet.
func NewStore(o Options) (*Store, error) {
	s := &Store{
		options:  o,
		limits:   limits{total: 32 << 20, namespace: 4 << 20, cluster: 16 << 20},
		known:    versionskew.KnownExceptionFields(),
		spaces:   map[string]*space{},
		excluded: make(chan *record, maxExcluded),
	}
	s.collections = []*collection{{store: s, resource: versionskew.Exceptions}, {store: s, resource: versionskew.ClusterExceptions}}
	var err error
	if s.guards, err = newGuards(s.listeners.Notify); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(s.metrics()...)
	}
	return s, nil
}

// NeedLeaderElection returns false: every replica evaluates requests.
func (s *Store) NeedLeaderElection() bool { return false }

// Start reads exceptions until ctx ends.
func (s *Store) Start(ctx context.Context) error {
	s.started.Store(new(time.Now()))
	var running sync.WaitGroup
	for _, w := range s.followers() {
		running.Go(func() { w.Run(ctx) })
	}
	running.Wait()
	return nil
}

func (s *Store) followers() []*objects.Follower {
	follow := func(group, resource, selector string, t objects.Target) *objects.Follower {
		version := "v1"
		if group == v1alpha1.GroupName {
			version = v1alpha1.GroupVersion.Version
		}
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		return &objects.Follower{
			From:     objects.Collection{Client: s.options.REST, Resource: gvr},
			Selector: selector,
			Target:   t,
			Log:      s.options.Log,
		}
	}
	const admission, named = "admissionregistration.k8s.io", "metadata.name=" + GuardName
	return []*objects.Follower{
		follow(v1alpha1.GroupName, "webhookpolicyexceptions", "", s.collections[0]),
		follow(v1alpha1.GroupName, "clusterwebhookpolicyexceptions", "", s.collections[1]),
		follow(admission, "validatingadmissionpolicies", named, s.guards[0]),
		follow(admission, "validatingadmissionpolicybindings", named, s.guards[1]),
	}
}

// Subscribe returns a channel that receives after each change of what is in effect, until ctx ends.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// For implements policy.Exceptions. It takes no lock.
func (s *Store) For(policy, namespace string) []*exceptions.Entry {
	if !s.inEffect() {
		return nil
	}
	return s.index.Load().For(policy, namespace)
}

// Versions returns for each policy with exceptions a number that differs if others have an effect at
// a time.
func (s *Store) Versions(now time.Time) map[string]uint64 {
	if !s.inEffect() {
		return nil
	}
	return s.index.Load().Versions(now)
}

// inEffect reports whether exceptions are guarded, and as the API server has them.
func (s *Store) inEffect() bool {
	return s.guarded() && !slices.ContainsFunc(s.collections, func(c *collection) bool { return !c.synced.Load() || !c.isCurrent() })
}

func (s *Store) guarded() bool {
	return !slices.ContainsFunc(s.guards, func(g *guard) bool { return !g.guards() })
}

// Ready returns an error until exceptions have been read for the first time, or reading them has
// failed for a minute.
func (s *Store) Ready() error {
	if started := s.started.Load(); started != nil && time.Since(*started) > readyTimeout {
		return nil
	}
	return s.read()
}

// read returns an error until everything has been read once.
func (s *Store) read() error {
	if slices.ContainsFunc(s.collections, func(c *collection) bool { return !c.synced.Load() }) ||
		slices.ContainsFunc(s.guards, func(g *guard) bool { return !g.synced.Load() }) {
		return errors.New("exceptions have not been read yet")
	}
	return nil
}

// Report adds what this replica applies to the report of its Lease.
func (s *Store) Report(r *versionskew.Report) {
	if !s.inEffect() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.collections {
		r.Loaded = r.Loaded.With(c.resource, c.version)
	}
	var unloaded []string
	for _, sp := range s.spaces {
		for _, e := range sp.records {
			if len(e.unknown) > 0 {
				unloaded = append(unloaded, e.String())
			}
		}
	}
	r.SetUnloaded(unloaded)
}

// collection reads the exceptions of one kind into the store. It implements objects.Target.
type collection struct {
	clock
	store    *Store
	resource versionskew.Resource
	synced   atomic.Bool

	list    uint64 // number of the current list
	version string // up to which the store has every change; guarded by store.mu
}

// has reports whether the exceptions of a space are of this kind.
func (c *collection) has(namespace string) bool {
	return (namespace == "") == (c.resource == versionskew.ClusterExceptions)
}

func (c *collection) BeginList() {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.list++
	for namespace, sp := range c.store.spaces {
		if c.has(namespace) {
			sp.cut, sp.out = nil, 0
		}
	}
}

func (c *collection) EndList(version string) {
	s := c.store
	s.mu.Lock()
	for namespace, sp := range s.spaces {
		if !c.has(namespace) {
			continue
		}
		for _, r := range sp.records {
			if r.list != c.list {
				s.drop(sp, r)
			}
		}
		s.forget(namespace, sp)
	}
	c.version = version
	s.mu.Unlock()
	c.synced.Store(true)
	s.listeners.Notify()
}

// IsIncomplete reports whether exceptions were left out that may fit now.
func (c *collection) IsIncomplete() bool {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for namespace, sp := range c.store.spaces {
		if c.has(namespace) && sp.cut != nil && hasRoom(sp.used, c.store.limit(namespace)) && hasRoom(c.store.used, c.store.limits.total) {
			return true
		}
	}
	return false
}

// hasRoom reports whether a quarter of a limit is free, so that lists do not alternate with a few
// bytes.
func hasRoom(used, limit int64) bool { return used <= limit-limit/4 }

func (c *collection) Put(raw []byte, isNew bool) error {
	r, err := newRecord(raw, c.store.known)
	if err != nil {
		c.store.options.Log.Error(err, "an exception has no effect, because it cannot be read")
		return c.Remove(raw)
	}
	r.list = c.list
	changed := c.store.put(r, isNew)
	c.reach(r.current, changed)
	return nil
}

func (c *collection) Remove(raw []byte) error {
	object, err := objects.Identify(raw)
	if err != nil {
		return err
	}
	changed := c.store.remove(object.Namespace, object.Name)
	c.reach(object.ResourceVersion, changed)
	return nil
}

// reach notes that every change up to a version is in the store, after the first list, before other
// parts learn of a change: the Lease names this version.
func (c *collection) reach(version string, changed bool) {
	if c.synced.Load() {
		c.store.mu.Lock()
		if versionskew.Reached(version, c.version) {
			c.version = version
		}
		c.store.mu.Unlock()
	}
	if changed {
		c.store.listeners.Notify()
	}
}

// put keeps an exception if the limits allow it, instead of an earlier version. It returns false if
// only the status has changed.
func (s *Store) put(r *record, isNew bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[r.Namespace]
	if sp == nil {
		sp = &space{records: map[string]*record{}}
		s.spaces[r.Namespace] = sp
	}
	before := sp.records[r.Name]
	if before != nil && before.uid == r.uid && before.Generation == r.Generation && before.Deleting == r.Deleting {
		before.current, before.status, before.list = r.current, r.status, r.list
		return false
	}
	if before != nil {
		s.drop(sp, before)
		isNew = true
	}
	if sp.cut != nil && r.position().compare(*sp.cut) > 0 {
		s.leaveOut(sp, r, isNew)
	} else {
		s.add(sp, r)
		s.enforce(sp, r.Namespace)
	}
	return true
}

func (s *Store) add(sp *space, r *record) {
	sp.records[r.Name] = r
	sp.used += r.size
	s.used += r.size
	if len(r.unknown) == 0 {
		s.index.Store(s.index.Load().With(r.Entry))
	}
}

func (s *Store) drop(sp *space, r *record) {
	delete(sp.records, r.Name)
	sp.used -= r.size
	s.used -= r.size
	if len(r.unknown) == 0 {
		s.index.Store(s.index.Load().Without(r.Entry))
	}
}

// enforce leaves out the youngest exceptions of a namespace beyond its limit, and of those that use
// most beyond the limit of all.
func (s *Store) enforce(sp *space, namespace string) {
	for sp.used > s.limit(namespace) {
		s.evict(sp)
	}
	for s.used > s.limits.total {
		s.evict(s.largest())
	}
}

func (s *Store) evict(sp *space) {
	r := sp.youngest()
	s.drop(sp, r)
	s.leaveOut(sp, r, true)
}

// leaveOut remembers that an exception is left out, and passes it to the leader's status.
func (s *Store) leaveOut(sp *space, r *record, isNew bool) {
	sp.exclude(r, isNew)
	select {
	case s.excluded <- r.identity():
	default: // the next list has it again
	}
}

func (s *Store) largest() (out *space) {
	for _, sp := range s.spaces {
		if out == nil || sp.used > out.used {
			out = sp
		}
	}
	return out
}

func (s *Store) limit(namespace string) int64 {
	if namespace == "" {
		return s.limits.cluster
	}
	return s.limits.namespace
}

// remove removes an exception, and reports whether it was kept.
func (s *Store) remove(namespace, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[namespace]
	if sp == nil {
		return false
	}
	r := sp.records[name]
	if r != nil {
		s.drop(sp, r)
	} else if sp.out > 0 {
		sp.out--
	}
	s.forget(namespace, sp)
	return r != nil
}

// forget forgets a space without exceptions.
func (s *Store) forget(namespace string, sp *space) {
	if len(sp.records) == 0 && sp.cut == nil {
		delete(s.spaces, namespace)
	}
}

// clock notes when an API server confirmed last what a target has.
type clock struct{ last atomic.Pointer[time.Time] }

func (c *clock) Contacted() { c.last.Store(new(time.Now())) }

func (c *clock) isCurrent() bool {
	last := c.last.Load()
	return last != nil && time.Since(*last) < maxSilence
}
