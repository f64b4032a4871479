package policy

import (
	"runtime"
	"sync"
	"weak"

	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// program is a compiled expression that several policies may share.
type program struct {
	result   celplugin.CompilationResult
	variable *apiservercel.DeclType // of a variable's expression, its type
}

type programKey struct {
	expression string
	kind       string // of the accessor: it determines the types that the expression may return
	decls      celplugin.OptionalVariableDeclarations
	variables  string // names and types of those that the expression may read; empty if it reads none
}

// programCache finds programs by their expression. It holds them weakly: a
// program lives as long as a policy uses it, so the cache needs no bound of
// its own and no eviction.
type programCache struct {
	mu      sync.Mutex
	entries map[programKey]weak.Pointer[program]
}

func newProgramCache() *programCache {
	return &programCache{entries: map[programKey]weak.Pointer[program]{}}
}

func (c *programCache) get(key programKey, compile func() *program) *program {
	if p := c.lookup(key); p != nil {
		return p
	}
	p := compile() // outside the lock: two callers may compile the same, which costs time but nothing else
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[key] = weak.Make(p)
	runtime.AddCleanup(p, c.forget, key)
	return p
}

func (c *programCache) lookup(key programKey) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key].Value()
}

// forget removes a key whose program is gone, unless it has been compiled anew.
func (c *programCache) forget(key programKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.entries[key]; ok && p.Value() == nil {
		delete(c.entries, key)
	}
}
