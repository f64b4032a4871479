// Package cachebudget bounds the memory of the objects that caches keep, so that no
// namespace can use all of it.
//
// A Budget has a total and a share for each namespace. A namespace that uses more than its
// share loses the objects of its largest cache. If all namespaces together use more than
// the total, the one that uses most loses objects, until the rest fits. A namespace that
// uses at most the total, divided by the number of namespaces, therefore never loses any.
package cachebudget

import (
	"slices"
	"sync"
)

const (
	// shares is the number of namespaces that can use a whole share at the same time.
	shares = 8
	// clusterShares is the number of shares of objects that belong to no namespace.
	// Tenants cannot create them.
	clusterShares = 4
)

// Budget bounds the bytes of all caches. It is safe for concurrent use.
type Budget struct {
	total int64

	mu     sync.Mutex
	used   int64
	owners map[string]*owner // by namespace; "" has the objects without one
	caches map[*Cache]struct{}
}

// owner is a namespace with objects.
type owner struct {
	used     int64 // in all caches
	counted  int64 // in caches that have not been replaced
	holdings []*holding
}

// holding is what a namespace has in one cache.
type holding struct {
	cache     *Cache
	namespace string
	used      int64
	over      bool // the cache released the objects
}

// Cache is a part of a Budget. It belongs to one cache of objects.
type Cache struct {
	budget   *Budget
	name     string
	release  func(namespace string, why Excess)
	holdings map[string]*holding
	replaced bool
	closed   bool
}

// Excess is the reason why a cache does not keep the objects of a namespace.
type Excess struct {
	// Used is what the namespace uses at least in this cache, in bytes.
	Used int64
	// Limit is the share of the namespace or, if Total is true, that of all namespaces
	// together.
	Limit int64
	Total bool
}

// New returns a Budget of a number of bytes.
func New(total int64) *Budget {
	return &Budget{total: total, owners: map[string]*owner{}, caches: map[*Cache]struct{}{}}
}

// Share returns the limit of a namespace; "" is that of objects without one.
func (b *Budget) Share(namespace string) int64 {
	if namespace == "" {
		return b.total / shares * clusterShares
	}
	return b.total / shares
}

// Used returns the bytes in use, by the names of caches.
func (b *Budget) Used() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int64{}
	for c := range b.caches {
		for _, h := range c.holdings {
			out[c.name] += h.used
		}
	}
	return out
}

// Open returns a Cache. release drops the objects of a namespace. It is called without locks of the budget, by the
// goroutine whose Add exceeds a limit, which can be that of another cache.
func (b *Budget) Open(name string, release func(namespace string, why Excess)) *Cache {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &Cache{budget: b, name: name, release: release, holdings: map[string]*holding{}}
	b.caches[c] = struct{}{}
	return c
}

// Add counts bytes for an object that the cache is about to keep. Negative bytes are those of
// a removed one. It returns false if the cache must not keep the object, because the
// namespace is over its limit.
func (c *Cache) Add(namespace string, bytes int64) bool {
	b := c.budget
	b.mu.Lock()
	h := c.holding(namespace)
	if h.over || c.closed {
		b.mu.Unlock()
		return false
	}
	b.count(h, bytes)
	var released []func()
	if bytes > 0 {
		released = b.enforce(h)
	}
	kept := !h.over
	c.forget(h)
	b.mu.Unlock()
	for _, release := range released {
		release()
	}
	return kept
}

// Exclude releases the objects of a namespace, because one of them alone needs too many
// bytes.
func (c *Cache) Exclude(namespace string, bytes int64) {
	b := c.budget
	b.mu.Lock()
	var release func()
	if h := c.holding(namespace); !h.over && !c.closed {
		b.count(h, bytes)
		release = b.evict(h, Excess{Limit: b.Share(namespace)})
	}
	b.mu.Unlock()
	if release != nil {
		release()
	}
}

// Fits reports whether a namespace that is over its limit could keep bytes again.
func (c *Cache) Fits(namespace string, bytes int64) bool {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	counted := bytes
	if o := b.owners[namespace]; o != nil {
		counted += o.counted
	}
	return counted <= b.Share(namespace) && b.used+bytes <= b.total
}

// Readmit lets a namespace that is over its limit keep objects again.
func (c *Cache) Readmit(namespace string) {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	if h := c.holdings[namespace]; h != nil {
		h.over = false
		c.forget(h)
	}
}

// SetReplaced excludes the cache from the shares while another one that replaces it is being
// filled. It still counts in the total.
func (c *Cache) SetReplaced(replaced bool) {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	if c.replaced == replaced {
		return
	}
	c.replaced = replaced
	for _, h := range c.holdings {
		if replaced {
			c.budget.owners[h.namespace].counted -= h.used
		} else {
			c.budget.owners[h.namespace].counted += h.used
		}
	}
}

// Close releases everything that the cache uses.
func (c *Cache) Close() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	for _, h := range c.holdings {
		c.budget.count(h, -h.used)
		h.over = false
		c.forget(h)
	}
	delete(c.budget.caches, c)
	c.closed = true
}

func (c *Cache) holding(namespace string) *holding {
	h := c.holdings[namespace]
	if h == nil {
		h = &holding{cache: c, namespace: namespace}
		c.holdings[namespace] = h
		o := c.budget.owners[namespace]
		if o == nil {
			o = &owner{}
			c.budget.owners[namespace] = o
		}
		o.holdings = append(o.holdings, h)
	}
	return h
}

// forget removes a holding without objects.
func (c *Cache) forget(h *holding) {
	if h.used != 0 || h.over || c.holdings[h.namespace] != h {
		return
	}
	delete(c.holdings, h.namespace)
	o := c.budget.owners[h.namespace]
	o.holdings = slices.DeleteFunc(o.holdings, func(other *holding) bool { return other == h })
	if len(o.holdings) == 0 {
		delete(c.budget.owners, h.namespace)
	}
}

func (b *Budget) count(h *holding, bytes int64) {
	h.used += bytes
	b.used += bytes
	o := b.owners[h.namespace]
	o.used += bytes
	if !h.cache.replaced {
		o.counted += bytes
	}
}

// enforce marks what exceeds a limit, and returns the functions that release it. h is what
// has grown.
func (b *Budget) enforce(h *holding) (released []func()) {
	o := b.owners[h.namespace]
	for share := b.Share(h.namespace); o.counted > share; {
		released = append(released, b.evict(o.largest(func(h *holding) bool { return !h.cache.replaced }), Excess{Limit: share}))
	}
	for b.used > b.total {
		o := b.owners[b.largestOwner()]
		released = append(released, b.evict(o.largest(func(*holding) bool { return true }), Excess{Limit: b.total, Total: true}))
	}
	return released
}

// largestOwner returns the namespace that uses the largest part of its share.
func (b *Budget) largestOwner() (namespace string) {
	var most float64
	for name, o := range b.owners {
		part := float64(o.used) / float64(max(b.Share(name), 1))
		if part > most || part == most && name < namespace {
			namespace, most = name, part
		}
	}
	return namespace
}

func (o *owner) largest(eligible func(*holding) bool) *holding {
	var out *holding
	for _, h := range o.holdings {
		if eligible(h) && (out == nil || h.used > out.used) {
			out = h
		}
	}
	return out
}

// evict returns the function that releases the objects of a namespace in one cache.
func (b *Budget) evict(h *holding, why Excess) func() {
	why.Used = h.used
	b.count(h, -h.used)
	h.over = true
	return func() { h.cache.release(h.namespace, why) }
}
