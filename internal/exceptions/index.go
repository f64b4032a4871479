package exceptions

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// MaxPerPolicyAndNamespace is the maximum of exceptions in effect for a policy and a namespace:
// those that were created first.
const MaxPerPolicyAndNamespace = 100

// shards is the number of maps of an index. A change copies one of them.
const shards = 256

// Index finds exceptions by policy and namespace. It is immutable: With and Without return
// others. Nil has no exceptions.
type Index struct {
	shards [shards]map[place][]*Entry
	size   int
}

// place is where exceptions have an effect; the namespace is empty for cluster-scoped objects.
type place struct{ policy, namespace string }

func (e *Entry) place() place { return place{e.Policy, e.Namespace} }

// shard spreads places over the shards, with FNV-1a.
func (p place) shard() int {
	hash := uint32(2166136261)
	for _, text := range [...]string{p.policy, p.namespace} {
		for i := range len(text) {
			hash = (hash ^ uint32(text[i])) * 16777619
		}
		hash *= 16777619
	}
	return int(hash % shards)
}

// NewIndex returns an index of exceptions with different keys.
func NewIndex(all []*Entry) *Index {
	x := &Index{size: len(all)}
	for _, e := range all {
		shard := &x.shards[e.place().shard()]
		if *shard == nil {
			*shard = map[place][]*Entry{}
		}
		(*shard)[e.place()] = append((*shard)[e.place()], e)
	}
	for _, shard := range &x.shards {
		for _, list := range shard {
			slices.SortFunc(list, byCreation)
		}
	}
	return x
}

func byCreation(a, b *Entry) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
}

// For returns the exceptions in effect for a policy and a namespace, the first created first.
// The caller must not change the list.
func (x *Index) For(policy, namespace string) []*Entry {
	all := x.all(place{policy, namespace})
	return all[:min(len(all), MaxPerPolicyAndNamespace)]
}

func (x *Index) all(p place) []*Entry {
	if x == nil {
		return nil
	}
	return x.shards[p.shard()][p]
}

// TooMany reports whether an exception has no effect because as many as have one were created
// before it.
func (x *Index) TooMany(e *Entry) bool {
	all := x.all(e.place())
	return slices.IndexFunc(all, func(other *Entry) bool { return other.Name == e.Name }) >= MaxPerPolicyAndNamespace
}

// Len returns the number of exceptions.
func (x *Index) Len() int {
	if x == nil {
		return 0
	}
	return x.size
}

// With returns an index that has the exception instead of one with its key, for the same policy.
func (x *Index) With(e *Entry) *Index {
	list := x.others(e)
	at, _ := slices.BinarySearchFunc(list, e, byCreation)
	return x.replace(e.place(), slices.Insert(list, at, e))
}

// Without returns an index without the exception.
func (x *Index) Without(e *Entry) *Index { return x.replace(e.place(), x.others(e)) }

// others returns a copy of the list of an exception without it.
func (x *Index) others(e *Entry) []*Entry {
	return slices.DeleteFunc(slices.Clone(x.all(e.place())), func(other *Entry) bool { return other.Name == e.Name })
}

func (x *Index) replace(p place, list []*Entry) *Index {
	out := &Index{}
	if x != nil {
		*out = *x
	}
	shard := &out.shards[p.shard()]
	out.size += len(list) - len((*shard)[p])
	if *shard = maps.Clone(*shard); *shard == nil {
		*shard = map[place][]*Entry{}
	}
	(*shard)[p] = list
	if len(list) == 0 {
		delete(*shard, p)
	}
	return out
}

// Versions returns for each policy with exceptions a number that differs if others have an effect
// at a time.
func (x *Index) Versions(now time.Time) map[string]uint64 {
	out := map[string]uint64{}
	if x == nil {
		return out
	}
	for _, shard := range &x.shards {
		for p := range shard {
			for _, e := range x.For(p.policy, p.namespace) {
				if !e.ends || now.Before(e.Expires) {
					out[p.policy] += e.hash // their order does not matter
				}
			}
		}
	}
	return out
}
