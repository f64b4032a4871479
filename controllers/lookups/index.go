package lookups

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ostiary/ostiary/internal/cachebudget"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/queue"
)

// index is the index of one definition. Only what is atomic, and the content for requests, is used without
// Store.computing.
type index struct {
	program *lookups.Program
	feed    *feed
	data    *lookups.Index
	// complete means that a list since the index exists has ended, and the resource still exists.
	complete atomic.Bool
	closed   atomic.Bool
	first    chan struct{} // closed when complete is true for the first time
	listed   sync.Once
	grace    time.Time // until requests wait for it

	cache   *cachebudget.Cache
	counted map[string]int64 // bytes in cache by namespace
	over    map[string]bool  // namespaces whose objects the budget does not permit
}

func newIndex(p *lookups.Program, f *feed) *index {
	entries := f.store.options.Entries
	x := &index{
		program: p, feed: f, counted: map[string]int64{}, over: map[string]bool{},
		first: make(chan struct{}), grace: time.Now().Add(maxWait),
		data: lookups.NewIndex(p.Definition, lookups.Limits{Pairs: entries, NamespacePairs: entries / namespaceShare}),
	}
	x.cache = f.store.budget.Open("lookups", x.release)
	return x
}

// await waits for the first list, for a moment after the policy has been loaded, unless it has failed.
func (x *index) await(ctx context.Context) {
	if x.complete.Load() || x.feed.problem() != "" {
		return
	}
	left := time.Until(x.grace)
	if left <= 0 {
		return
	}
	queue.Yield(ctx, func() {
		select {
		case <-x.first:
		case <-time.After(left):
		case <-ctx.Done():
		}
	})
}

// setComplete notes that a list has ended.
func (x *index) setComplete() {
	x.complete.Store(true)
	x.listed.Do(func() { close(x.first) })
}

// close releases the memory. Requests that still read the index read its last content.
func (x *index) close() {
	x.closed.Store(true)
	x.cache.Close()
}

func (x *index) beginList() {
	for namespace := range x.over {
		x.cache.Readmit(namespace)
	}
	clear(x.over)
	x.data.Update(func(c *lookups.Changes) { c.BeginList() })
}

func (x *index) endList() {
	x.data.Update(func(c *lookups.Changes) { c.EndList() })
	for namespace := range x.counted {
		x.count(namespace)
	}
}

// reset removes everything, because the resource does not exist.
func (x *index) reset() {
	x.complete.Store(false)
	x.beginList()
	x.endList()
}

// apply changes objects. The change of the index is the i-th one of each.
func (x *index) apply(all []pendingObject, i int) {
	touched := map[string]bool{}
	x.data.Update(func(c *lookups.Changes) {
		for _, o := range all {
			touched[o.ref.Namespace] = true
			switch change := o.changes[i]; {
			case change.err != nil:
				c.Fail(o.ref, change.err)
			default:
				c.Put(o.ref, change.entry)
			}
		}
	})
	for namespace := range touched {
		x.count(namespace)
	}
}

// count counts the memory of a namespace in the budget, which can release its objects, or those of another one in any
// index.
func (x *index) count(namespace string) {
	if x.closed.Load() {
		return
	}
	bytes := x.data.NamespaceBytes(namespace)
	delta := bytes - x.counted[namespace]
	if x.counted[namespace] = bytes; bytes == 0 {
		delete(x.counted, namespace)
	}
	if delta != 0 {
		x.cache.Add(namespace, delta)
	}
}

// release removes the objects of a namespace until the next list. The budget calls it.
func (x *index) release(namespace string, why cachebudget.Excess) {
	objects := fmt.Sprintf("the objects in namespace %q", namespace)
	if namespace == "" {
		objects = "the objects without a namespace"
	}
	reason := fmt.Sprintf("%s use more than their share of %s", objects, mebibytes(why.Limit))
	if why.Total {
		reason = fmt.Sprintf("%s use the largest part of their share, and all together exceed %s", objects, mebibytes(why.Limit))
	}
	x.over[namespace] = true
	delete(x.counted, namespace)
	x.data.Update(func(c *lookups.Changes) { c.Release(namespace, reason) })
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// leavesOut reports whether objects were left out that may fit later.
func (x *index) leavesOut() bool {
	stats := x.data.Stats()
	return stats.Over != "" || stats.Incomplete != ""
}

// age returns the time for which changes may be missing.
func (x *index) age() time.Duration {
	asOf := x.feed.follower.AsOf()
	if asOf.IsZero() {
		return 0
	}
	return time.Since(asOf)
}
