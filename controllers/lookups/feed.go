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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	// retryInterval is the interval between attempts to find and list a resource.
	retryInterval = 2 * time.Second
	// maxEntryTime limits the evaluations for one object, whose cost is limited too.
	maxEntryTime = 2 * time.Second
	// Objects of a list are put into the indexes together, up to maxPending of them or maxPendingBytes.
	maxPending      = 256
	maxPendingBytes = 1 << 20
	// relistInterval is the time between lists because of objects that were left out, and relistFactor that
	// time as a multiple of the duration of a list, so that a tenant with many objects causes few of them.
	relistInterval = time.Minute
	relistFactor   = 20
)

// feed lists and watches the objects of a resource for all indexes. It implements objects.Target.
type feed struct {
	store    *Store
	resource schema.GroupVersionResource
	follower objects.Follower
	again    events.Signal
	ctx      context.Context //nolint:containedctx // the life of the feed
	stop     context.CancelFunc

	indexes atomic.Pointer[[]*index]

	mu           sync.Mutex
	text         string // the problem; "" without one
	last         error  // of the last list or watch, nil if it succeeded
	isNamespaced atomic.Bool

	// The goroutine of the follower changes these, and Store.remove. Their reads need Store.computing.
	kind         string
	active       []*index                   // those that the current list fills, or the last one has filled
	parts        unstructuredjson.Selection // that they read
	pending      []pendingObject            // of a list
	bytes        int                        // of pending
	listing      bool
	incomparable bool      // resource versions are no numbers
	began        time.Time // the last list
	ended        time.Time
}

// pendingObject is an object that is not in the indexes yet, with a change for each of the active ones.
type pendingObject struct {
	ref     lookups.Ref
	changes []change
}

// change is what an index has to keep of an object: nothing if it has been removed.
type change struct {
	entry lookups.Entry
	err   error
}

func newFeed(s *Store, resource schema.GroupVersionResource) *feed {
	f := &feed{store: s, resource: resource, again: events.NewSignal()}
	f.ctx, f.stop = context.WithCancel(s.end)
	f.indexes.Store(&[]*index{})
	f.follower = objects.Follower{
		From: objects.Collection{
			Client: s.options.REST, Resource: resource, MetadataOnly: s.options.Sensitive.Contains(resource.GroupResource(), ""),
		},
		Target: f, Log: logr.Discard(), Again: f.again, Dates: true,
	}
	return f
}

// change replaces the indexes, and returns their number.
func (f *feed) change(edit func([]*index) []*index) int {
	after := edit(slices.Clone(*f.indexes.Load()))
	f.indexes.Store(&after)
	return len(after)
}

// run follows the resource until the feed is stopped.
func (f *feed) run() {
	f.store.options.Log.Info("watching a resource for lookups", "resource", f.resource.String())
	wait.JitterUntilWithContext(f.ctx, f.follow, retryInterval, 0.5, true)
	f.store.options.Log.Info("stopped watching a resource for lookups", "resource", f.resource.String())
}

// follow finds the resource and watches it until it no longer exists or may no longer be read.
func (f *feed) follow(ctx context.Context) {
	kind, err := f.find(ctx)
	if err != nil {
		f.report(ctx, err)
		return
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	f.kind = kind
	f.follower.Report = func(err error) {
		if f.report(ctx, err); apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			giveUp()
		}
	}
	f.follower.Run(ctx)
}

var errUnknownResource = errors.New("unknown resource")

// find returns the kind of the objects.
func (f *feed) find(ctx context.Context) (string, error) {
	list, err := f.store.options.Discovery.ServerResourcesForGroupVersionWithContext(ctx, f.resource.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("finding %s: %w", f.resource.Resource, err)
	}
	if err == nil {
		if i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == f.resource.Resource }); i >= 0 {
			f.isNamespaced.Store(list.APIResources[i].Namespaced)
			return list.APIResources[i].Kind, nil
		}
	}
	return "", errUnknownResource
}

// Contacted implements objects.Target.
func (f *feed) Contacted() {}

// BeginList implements objects.Target.
func (f *feed) BeginList() {
	f.store.computing.Lock()
	defer f.store.computing.Unlock()
	f.active, f.pending, f.bytes = *f.indexes.Load(), nil, 0
	f.began, f.listing, f.parts = time.Now(), true, lookups.Identity()
	for _, x := range f.active {
		f.parts = f.parts.Union(x.program.Reads())
		x.beginList()
	}
}

// EndList implements objects.Target.
func (f *feed) EndList(version string) {
	f.store.computing.Lock()
	defer f.store.computing.Unlock()
	f.flush()
	f.listing, f.ended = false, time.Now()
	_, err := resourceversion.CompareResourceVersion(version, version)
	for _, x := range f.active {
		if x.endList(); err == nil { // otherwise the age of the data would not be known
			x.setComplete()
		}
	}
	f.incomparable = err != nil
	f.store.listeners.Notify()
}

// IsIncomplete implements objects.Target: an index is new, or objects were left out that may fit now.
func (f *feed) IsIncomplete() bool {
	f.store.computing.Lock()
	defer f.store.computing.Unlock()
	overdue := time.Since(f.ended) > max(f.store.relist, relistFactor*f.ended.Sub(f.began))
	return slices.ContainsFunc(*f.indexes.Load(), func(x *index) bool {
		return !slices.Contains(f.active, x) || overdue && (x.leavesOut() || !x.complete.Load())
	})
}

// Put implements objects.Target.
func (f *feed) Put(raw []byte, _ bool) error {
	f.store.computing.Lock()
	defer f.store.computing.Unlock()
	o, err := f.evaluate(raw)
	if err != nil {
		return fmt.Errorf("decoding an object: %w", err)
	}
	f.pending = append(f.pending, o)
	for _, c := range o.changes {
		f.bytes += c.entry.Size()
	}
	if !f.listing || len(f.pending) >= maxPending || f.bytes >= maxPendingBytes {
		f.flush()
	}
	return nil
}

// Remove implements objects.Target.
func (f *feed) Remove(raw []byte) error {
	o, err := objects.Identify(raw)
	if err != nil {
		return err
	}
	f.store.computing.Lock()
	defer f.store.computing.Unlock()
	ref := lookups.Ref{UID: string(o.UID), Namespace: o.Namespace, Name: o.Name}
	f.pending = append(f.pending, pendingObject{ref: ref, changes: make([]change, len(f.active))})
	f.flush()
	return nil
}

// flush puts the pending objects into the indexes.
func (f *feed) flush() {
	for i, x := range f.active {
		x.apply(f.pending, i)
	}
	clear(f.pending)
	f.pending, f.bytes = f.pending[:0], 0
}

// evaluate computes what the indexes keep of an object. It fails only if the object cannot be identified.
func (f *feed) evaluate(raw []byte) (pendingObject, error) {
	account := f.store.trees.Open()
	defer account.Close()
	out := pendingObject{changes: make([]change, len(f.active))}
	tree, failed := account.DecodeParts(raw, f.parts)
	if failed != nil {
		var err error
		if tree, err = unstructuredjson.DecodeParts(raw, lookups.Identity()); err != nil {
			return out, err
		}
	}
	metadata, _ := tree["metadata"].(map[string]any)
	text := func(name string) string {
		s, _ := metadata[name].(string)
		return s
	}
	out.ref = lookups.Ref{UID: text("uid"), Namespace: text("namespace"), Name: text("name")}
	if out.ref.UID == "" || out.ref.Name == "" {
		return out, errors.New("it has no name or uid")
	}
	tree["apiVersion"], tree["kind"] = f.resource.GroupVersion().String(), f.kind // lists of built-in kinds have none
	ctx, cancel := context.WithTimeout(f.ctx, maxEntryTime)
	defer cancel()
	for i, x := range f.active {
		switch c := &out.changes[i]; {
		case failed != nil:
			c.err = failed
		case x.data.Keeps(out.ref.Namespace): // a tenant beyond its share costs no evaluations
			c.entry, c.err = x.program.Entry(ctx, tree)
		}
	}
	return out, nil
}
