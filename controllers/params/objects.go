package params

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/internal/cachebudget"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// objectStore contains the objects of a scope, as far as the budget allows. A reflector
// fills it: a list puts each object as it arrives, and Replace ends the list. So a list needs
// no second copy of the objects.
type objectStore struct {
	name     string // of all objects; "" means any
	cache    *cachebudget.Cache
	describe func(namespace string, why cachebudget.Excess) error
	changed  func() // the namespaces over their limit have changed

	mu       sync.RWMutex
	groups   map[string]*group // by namespace
	excluded int               // groups over their limit
	list     uint64            // number of the current list
	version  string            // resource version of the last list or event
	synced   chan struct{}     // closed by the first Replace
	isSynced bool
}

// group has the objects of a namespace.
type group struct {
	objects map[string]entry    // by name
	excess  *cachebudget.Excess // the namespace is over its limit, so it has no objects
	loading bool                // the current list reads it again; until its end, excess stays
	retry   bool                // the next list reads it again
	counted int64               // size in the current list, of a namespace over its limit
}

type entry struct {
	object *unstructured.Unstructured
	size   int64
	list   uint64 // in which it was read last
}

func newObjectStore(budget *cachebudget.Budget, cacheName string, describe func(string, cachebudget.Excess) error, changed func()) *objectStore {
	s := &objectStore{describe: describe, changed: changed, groups: map[string]*group{}, synced: make(chan struct{})}
	s.cache = budget.Open(cacheName, s.exclude)
	return s
}

// beginList starts a list, which reads namespaces again whose objects may fit now.
func (s *objectStore) beginList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list++
	for namespace, g := range s.groups {
		g.counted = 0
		if g.loading || g.retry { // loading: the last list failed
			g.loading, g.retry = true, false
			s.cache.Readmit(namespace)
		}
	}
}

// put keeps an object if the budget allows it. Only the goroutine of the reflector puts and
// removes objects; the budget can release them at any time.
func (s *objectStore) put(o *item) {
	namespace, name := o.GetNamespace(), o.GetName()
	if s.name != "" && name != s.name {
		return
	}
	s.mu.Lock()
	g := s.group(namespace)
	if g.excess != nil && !g.loading {
		g.counted += o.size
		s.mu.Unlock()
		return
	}
	before := g.objects[name].size
	isNew := s.isSynced && before == 0
	s.mu.Unlock()
	if isNew {
		defer s.changed()
	}
	if o.tooLarge {
		s.cache.Exclude(namespace, o.size)
		return
	}
	if !s.cache.Add(namespace, o.size-before) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(namespace); g.excess == nil || g.loading {
		if g.objects == nil {
			g.objects = map[string]entry{}
		}
		g.objects[name] = entry{object: o.Unstructured, size: o.size, list: s.list}
	}
}

func (s *objectStore) group(namespace string) *group {
	g := s.groups[namespace]
	if g == nil {
		g = &group{}
		s.groups[namespace] = g
	}
	return g
}

// exclude drops the objects of a namespace. The budget calls it.
func (s *objectStore) exclude(namespace string, why cachebudget.Excess) {
	s.mu.Lock()
	g := s.group(namespace)
	if g.excess == nil {
		s.excluded++
	}
	g.objects, g.loading, g.excess, g.counted = nil, false, &why, why.Used
	s.mu.Unlock()
	s.changed()
}

// endList removes what the list did not contain, and ends the exclusion of namespaces that
// fit again.
func (s *objectStore) endList() {
	s.mu.Lock()
	before := s.excluded
	freed := map[string]int64{}
	for namespace, g := range s.groups {
		for name, e := range g.objects {
			if e.list != s.list {
				freed[namespace] -= e.size
				delete(g.objects, name)
			}
		}
		switch {
		case g.loading:
			g.loading, g.excess = false, nil
			s.excluded--
		case g.excess != nil:
			g.excess.Used = max(g.counted, 1)
		}
		if g.excess == nil && len(g.objects) == 0 {
			delete(s.groups, namespace)
		}
	}
	changed := s.excluded != before || len(freed) > 0
	s.mu.Unlock()
	for namespace, bytes := range freed {
		s.cache.Add(namespace, bytes)
	}
	if changed {
		s.changed()
	}
}

// Add implements cache.ReflectorStore.
func (s *objectStore) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *objectStore) Update(o any) error {
	object, ok := o.(*item)
	if !ok {
		return fmt.Errorf("got a %T", o)
	}
	s.put(object)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *objectStore) Delete(o any) error {
	object, ok := o.(*item)
	if !ok {
		return fmt.Errorf("got a %T", o)
	}
	s.remove(object.GetNamespace(), object.GetName())
	return nil
}

func (s *objectStore) remove(namespace, name string) {
	s.mu.Lock()
	g := s.groups[namespace]
	var size int64
	if g != nil {
		size = g.objects[name].size
		delete(g.objects, name)
		if len(g.objects) == 0 && g.excess == nil {
			delete(s.groups, namespace)
		}
	}
	s.mu.Unlock()
	if size > 0 {
		s.cache.Add(namespace, -size)
		s.changed()
	}
}

// mayContain reports whether there is an object in a scope, or that is not known: before the end of
// the first list, and in a namespace that is over its limit.
func (s *objectStore) mayContain(of scope, selector labels.Selector) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.isSynced {
		return true
	}
	for namespace, g := range s.groups {
		switch {
		case of.namespace != "" && of.namespace != namespace:
			continue
		case g.excess != nil:
			return true
		case of.name != "":
			if _, ok := g.objects[of.name]; ok {
				return true
			}
			continue
		}
		for _, e := range g.objects {
			if selector.Matches(labels.Set(e.object.GetLabels())) {
				return true
			}
		}
	}
	return false
}

// Replace implements cache.ReflectorStore. It ends a list. The objects of the list are in the
// store already.
func (s *objectStore) Replace(_ []any, version string) error {
	s.endList()
	s.UpdateResourceVersion(version)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isSynced {
		s.isSynced = true
		close(s.synced)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *objectStore) Resync() error { return nil }

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (s *objectStore) UpdateResourceVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// lastVersion returns the resource version before which nothing has to be read again.
func (s *objectStore) lastVersion() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.version
}

// excess returns an error if a namespace is over its limit.
func (s *objectStore) excess(namespace string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.excessLocked(namespace)
}

func (s *objectStore) excessLocked(namespace string) error {
	if s.excluded == 0 {
		return nil
	}
	if g := s.groups[namespace]; g != nil && g.excess != nil {
		return s.describe(namespace, *g.excess)
	}
	return nil
}

// excludedNamespaces returns the first namespaces over their limit and the number of all.
func (s *objectStore) excludedNamespaces(limit int) (first []string, all int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.excluded == 0 {
		return nil, 0
	}
	for namespace, g := range s.groups {
		if g.excess == nil {
			continue
		}
		i, _ := slices.BinarySearch(first, namespace)
		if first = slices.Insert(first, i, namespace); len(first) > limit {
			first = first[:limit]
		}
	}
	return first, s.excluded
}

// excludedAfter returns up to limit namespaces over their limit: those after a name, then the
// first.
func (s *objectStore) excludedAfter(last string, limit int) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.excluded == 0 {
		return nil
	}
	var all []string
	for namespace, g := range s.groups {
		if g.excess != nil {
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	i, found := slices.BinarySearch(all, last)
	if found {
		i++
	}
	all = append(all[i:], all[:i]...)
	return all[:min(len(all), limit)]
}

// retryList marks namespaces that the next list reads again.
func (s *objectStore) retryList(namespaces []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, namespace := range namespaces {
		if g := s.groups[namespace]; g != nil && g.excess != nil {
			g.retry = true
		}
	}
}

// hash returns a number that changes with the objects, in any order.
func (s *objectStore) hash() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sum := uint64(s.excluded) //nolint:gosec // a count
	for _, g := range s.groups {
		for _, e := range g.objects {
			h := fnv.New64a()
			_, _ = h.Write([]byte(string(e.object.GetUID()) + " " + e.object.GetResourceVersion())) // never fails
			sum += h.Sum64()
		}
	}
	return sum
}

// size returns the number of objects.
func (s *objectStore) size() (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.groups {
		n += len(g.objects)
	}
	return n
}

// lister reads the objects of a namespace. It implements cache.GenericNamespaceLister and, for
// a kind without namespaces, cache.GenericLister.
type lister struct {
	objects   *objectStore
	namespace string
	resource  schema.GroupResource
}

// ByNamespace implements cache.GenericLister.
func (l lister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	l.namespace = namespace
	return l
}

// Get implements cache.GenericNamespaceLister.
func (l lister) Get(name string) (runtime.Object, error) {
	s := l.objects
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.excessLocked(l.namespace); err != nil {
		return nil, err
	}
	if g := s.groups[l.namespace]; g != nil {
		if e, ok := g.objects[name]; ok {
			return e.object, nil
		}
	}
	return nil, apierrors.NewNotFound(l.resource, name)
}

// List implements cache.GenericNamespaceLister.
func (l lister) List(selector labels.Selector) (out []runtime.Object, err error) {
	s := l.objects
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.excessLocked(l.namespace); err != nil {
		return nil, err
	}
	g := s.groups[l.namespace]
	if g == nil {
		return nil, nil
	}
	for _, e := range g.objects {
		if selector.Empty() || selector.Matches(labels.Set(e.object.GetLabels())) {
			out = append(out, e.object)
		}
	}
	return out, nil
}

// isTooLarge reports whether the decoded object exceeds the limit of one object.
func isTooLarge(err error) bool {
	var busy *unstructuredjson.BusyError
	return errors.Is(err, unstructuredjson.ErrTooLarge) || errors.As(err, &busy)
}
