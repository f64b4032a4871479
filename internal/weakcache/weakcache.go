// Package weakcache shares values that are costly to create while at least one caller holds them.
package weakcache

import (
	"runtime"
	"sync"
	"weak"
)

// Cache holds values weakly: a value lives as long as one of its users holds it, so the cache needs no bound and no
// eviction. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]weak.Pointer[V]
}

// New returns an empty cache.
func New[K comparable, V any]() *Cache[K, V] {
	return &Cache[K, V]{entries: map[K]weak.Pointer[V]{}}
}

// Get returns the value of a key, and creates it if no caller holds one.
func (c *Cache[K, V]) Get(key K, create func() *V) *V {
	if v := c.lookup(key); v != nil {
		return v
	}
	v := create() // outside the lock: two callers may create the same, which only costs time
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[key] = weak.Make(v)
	runtime.AddCleanup(v, c.forget, key)
	return v
}

// Find returns the value of a key if a caller holds one.
func (c *Cache[K, V]) Find(key K) (*V, bool) {
	v := c.lookup(key)
	return v, v != nil
}

// Len returns the number of values that the cache has not forgotten yet.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

func (c *Cache[K, V]) lookup(key K) *V {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key].Value()
}

// forget removes a key whose value has been collected, unless it has been created again.
func (c *Cache[K, V]) forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.entries[key]; ok && p.Value() == nil {
		delete(c.entries, key)
	}
}
