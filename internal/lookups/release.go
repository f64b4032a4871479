package lookups

import (
	"maps"
	"slices"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Release removes the objects of a namespace, and keeps none of them until the end of the next list that permits them. The
// reason completes the sentence "the lookup is incomplete:".
func (c *Changes) Release(name, reason string) { c.index.release(name, reason) }

func (x *Index) release(name, reason string) {
	n := x.namespace(name)
	n.over = fault{reason: reason, list: x.list} // it stays without objects
	for _, o := range x.objects {
		if o.namespaceText() == name {
			x.remove(o)
		}
	}
	x.changed, x.faulty = true, true
}

// isReleased reports whether the objects of a namespace have been released since the last list began.
func (x *Index) isReleased(n *namespace) bool { return n.over.reason != "" && n.over.list == x.list }

// Keeps reports whether the index keeps objects of a namespace until the next list begins. If not, their keys need not be
// computed.
func (x *Index) Keeps(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.namespaces[name]
	return n == nil || !x.isReleased(n)
}

// NamespaceBytes returns the memory of the objects of a namespace.
func (x *Index) NamespaceBytes(name string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := x.namespaces[name]; n != nil {
		return n.bytes
	}
	return 0
}

// incomplete returns why no request has a result: requests of every namespace read the objects of all, if the scope is
// Cluster.
func (x *Index) incomplete(faults map[string]string) string {
	if x.full.reason == "" && x.definition.Scope == v1alpha1.LookupScopeCluster && len(faults) > 0 {
		return faults[slices.Min(slices.Collect(maps.Keys(faults)))]
	}
	return x.full.reason
}

// Size returns the bytes of the strings.
func (e Entry) Size() int {
	n := len(e.Value)
	for _, key := range e.Keys {
		n += len(key)
	}
	return n
}
