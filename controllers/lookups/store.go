// Package lookups keeps the indexes of the lookups of policies up to date. Every replica lists and
// watches each resource once for all policies, and keeps no object: only the keys and values of
// internal/lookups, within a budget of memory.
//
// A request that reads a lookup is an error if the index is not complete or too old. Its failurePolicy
// then decides, so that no policy passes a request because it does not see an object.
package lookups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/cachebudget"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/sensitive"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
	"github.com/ostiary/ostiary/internal/versionskew"
)

const (
	// readyTimeout is how long a starting replica stays unready because of lookups that neither
	// complete nor fail.
	readyTimeout = time.Minute
	// checkInterval is the interval between comparisons of the states that statuses show.
	checkInterval = 2 * time.Second
	// maxTree limits the decoded size of one object in bytes.
	maxTree = 24 << 20
	// maxWait is how long requests wait for the first list, from the start of the index on.
	maxWait = time.Second
	// namespaceShare is the part of the keys of a lookup that the objects of one namespace can have.
	namespaceShare = 8
)

// Discovery lists the resources of a group version, like a discovery client.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Options configures a Store.
type Options struct {
	// REST lists and watches, with the permissions of Account, the ServiceAccount namespace/name.
	REST      rest.Interface
	Account   string
	Discovery Discovery
	// Entries is the number of keys of a lookup, and Memory the bytes of all of them.
	Entries, Memory int64
	// MaxAge is the age of the data from which on requests are errors.
	MaxAge time.Duration
	// Sensitive are the resources of which only the metadata is read.
	Sensitive sensitive.Resources
	Log       logr.Logger
	// Registerer registers the metrics; nil disables them.
	Registerer prometheus.Registerer
}

// Store has the indexes of this replica. It implements manager.Runnable.
type Store struct {
	options   Options
	budget    *cachebudget.Budget
	listeners events.Broadcaster
	end       context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup

	// computing is held while an object is decoded, so that only one is in memory, and while indexes
	// change.
	computing sync.Mutex
	trees     *unstructuredjson.Memory
	relist    time.Duration // between lists because of objects that were left out

	indexes atomic.Pointer[map[lookups.Definition]*index] // replaced as a whole; requests read it

	mu       sync.Mutex // guards changes of indexes
	feeds    map[schema.GroupVersionResource]*feed
	first    []*index // those for which a starting replica waits
	deadline time.Time
}

// New returns a Store that watches nothing yet.
func New(o Options) *Store {
	s := &Store{
		options: o, budget: cachebudget.New(o.Memory), trees: unstructuredjson.NewMemory(maxTree), relist: relistInterval,
		feeds: map[schema.GroupVersionResource]*feed{},
	}
	s.end, s.stop = context.WithCancel(context.Background())
	s.indexes.Store(&map[lookups.Definition]*index{})
	if o.Registerer != nil {
		o.Registerer.MustRegister(metrics{s})
	}
	return s
}

// NeedLeaderElection returns false: every replica evaluates requests.
func (s *Store) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It ends all watches when ctx ends.
func (s *Store) Start(ctx context.Context) error {
	s.notifyChanges(ctx)
	s.stop()
	s.awaitWant()
	s.running.Wait()
	return nil
}

// awaitWant waits until an earlier call of Want has returned. A later one starts nothing.
func (s *Store) awaitWant() {
	s.mu.Lock()
	defer s.mu.Unlock() //nolint:gocritic // the lock alone is the wait
}

// notifyChanges notifies after changes of what statuses show, until ctx ends. The age of the data changes
// without an event, and objects change more often than statuses can.
func (s *Store) notifyChanges(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	last := map[lookups.Definition]State{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, changed := map[lookups.Definition]State{}, false
		for d := range *s.indexes.Load() {
			now[d] = s.State(d)
			before, known := last[d]
			changed = changed || !known || before != now[d]
		}
		if last = now; changed {
			s.listeners.Notify()
		}
	}
}

// Subscribe returns a channel that receives after each change of a State, until ctx ends.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// Want sets the lookups to keep. It ignores duplicates. Indexes that are still needed stay in use.
func (s *Store) Want(programs []*lookups.Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := *s.indexes.Load(), map[lookups.Definition]*index{}
	added := map[*feed]bool{}
	for _, p := range programs {
		if after[p.Definition] != nil {
			continue
		}
		x := before[p.Definition]
		if x == nil {
			x = s.newIndex(p)
			added[x.feed] = true
		}
		after[p.Definition] = x
	}
	s.indexes.Store(&after)
	for d, x := range before {
		if after[d] == nil {
			s.remove(x)
		}
	}
	for f := range added {
		f.again.Send()
	}
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(readyTimeout)
		for _, x := range after {
			s.first = append(s.first, x)
		}
	}
}

// newIndex adds an index to the feed of its resource, which fills it with its next list.
func (s *Store) newIndex(p *lookups.Program) *index {
	resource := p.GroupVersionResource()
	f, isNew := s.feeds[resource], false
	if f == nil {
		f, isNew = newFeed(s, resource), true
		s.feeds[resource] = f
	}
	x := newIndex(p, f)
	f.change(func(all []*index) []*index { return append(all, x) })
	if isNew && s.end.Err() == nil { // Start must not wait for later goroutines
		s.running.Go(f.run)
	}
	return x
}

// remove removes an index, and the feed that nothing else needs.
func (s *Store) remove(x *index) {
	f := x.feed
	without := func(all []*index) []*index {
		return slices.DeleteFunc(all, func(other *index) bool { return other == x })
	}
	if f.change(without) == 0 {
		f.stop()
		delete(s.feeds, f.resource)
	}
	s.computing.Lock()
	defer s.computing.Unlock()
	f.flush() // pending objects have changes of the active indexes
	f.active = without(slices.Clone(f.active))
	x.close()
}

// Lookup implements policy.Lookups. An error says why the result is not known, and what to do.
func (s *Store) Lookup(ctx context.Context, p *lookups.Program, q lookups.Query) (lookups.Result, error) {
	return s.find(ctx, p, q, func(x *index) *lookups.View { return x.data.View() })
}

// find finds objects in a view of an index that is usable now.
func (s *Store) find(
	ctx context.Context, p *lookups.Program, q lookups.Query, view func(*index) *lookups.View,
) (lookups.Result, error) {
	x := (*s.indexes.Load())[p.Definition]
	if x == nil {
		return lookups.Result{}, fmt.Errorf("%s are not watched yet", describe(p.GroupVersionResource()))
	}
	x.await(ctx)
	if problem := x.unusable(); problem != "" {
		return lookups.Result{}, errors.New(problem)
	}
	found, err := view(x).Find(q)
	if err != nil {
		return lookups.Result{}, fmt.Errorf("%s: %w", describe(p.GroupVersionResource()), err)
	}
	return found, nil
}

// Revision returns a number that changes with what requests can find.
func (s *Store) Revision(d lookups.Definition) uint64 {
	if x := (*s.indexes.Load())[d]; x != nil {
		return x.data.View().Revision
	}
	return 0
}

// Ready returns an error while a lookup from the first call of Want has neither completed nor failed. Later
// calls of Want do not make the replica unready again.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.first {
		if time.Now().After(s.deadline) {
			break
		}
		if !x.complete.Load() && x.feed.problem() == "" && !x.closed.Load() {
			s.first = s.first[i:]
			return fmt.Errorf("lookups: %s are being listed", describe(x.feed.resource))
		}
	}
	s.first = nil
	return nil
}

// Report adds the lookups that this replica cannot use to the report of its Lease.
func (s *Store) Report(r *versionskew.Report) {
	var unready []string
	for d, x := range *s.indexes.Load() {
		if problem := x.unusable(); problem != "" {
			unready = append(unready, Name(d))
		}
	}
	r.SetUnready(unready)
}
