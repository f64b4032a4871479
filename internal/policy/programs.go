package policy

import (
	"reflect"
	"runtime"
	"sync"
	"weak"

	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// program is a compiled expression, which policies can share.
type program struct {
	result   celplugin.CompilationResult
	variable *apiservercel.DeclType // the type of a variable; nil for other expressions
}

type programKey struct {
	expression string
	kind       reflect.Type // of the accessor, which determines the permitted types; nil for a variable
	decls      celplugin.OptionalVariableDeclarations
	variables  string // names and types of the variables that it can read; empty if it reads none
}

// weakCache holds values weakly: a value lives as long as a policy uses it, so the
// cache needs no bound and no eviction.
type weakCache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]weak.Pointer[V]
}

func newWeakCache[K comparable, V any]() *weakCache[K, V] {
	return &weakCache[K, V]{entries: map[K]weak.Pointer[V]{}}
}

func (c *weakCache[K, V]) get(key K, create func() *V) *V {
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

func (c *weakCache[K, V]) lookup(key K) *V {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key].Value()
}

// forget removes a key whose value is gone, unless it has been created again.
func (c *weakCache[K, V]) forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.entries[key]; ok && p.Value() == nil {
		delete(c.entries, key)
	}
}
