package lookups

import (
	"fmt"
	"slices"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Bounds of one query.
const (
	// MaxValues is the number of objects in a result.
	MaxValues = 1000
	// maxVisits is the number of pairs and of comparisons of keys.
	maxVisits = 50_000
)

// View is the content of an index at one time. It is immutable.
type View struct {
	// Revision is larger after each change that a request can see.
	Revision uint64

	definition Definition
	pairs      *btree.BTree[pair]
	full       string
	faults     map[string]string // by namespace
}

// Query is what a request looks for.
type Query struct {
	Keys      []string // sorted, each once
	Match     v1alpha1.LookupMatch
	Namespace string // of the request
	Own       Own
}

// Own is the object of the request, which is not found.
type Own struct {
	UID string // empty if it is not known
	// IsStored means that the objects of the lookup have the resource of the request, so that one with the same namespace
	// and name is the same object.
	IsStored        bool
	Namespace, Name string
}

// Result has the objects that are found, by namespace and name.
type Result struct{ Values []Value }

// search is one query during its evaluation.
type search struct {
	*View
	query   Query
	own     uid
	hasOwn  bool
	first   *object // before all objects that the query can find
	visits  int
	found   []*object
	tooMany error
}

// Find returns the objects that a query matches. An error means that the result is not known, because the view does not
// contain every object that it could contain, or too large.
func (v *View) Find(q Query) (Result, error) {
	if err := v.check(q.Namespace); err != nil || len(q.Keys) == 0 {
		return Result{}, err
	}
	s := &search{View: v, query: q, hasOwn: q.Own.UID != "", first: &object{}}
	if v.definition.Scope != v1alpha1.LookupScopeCluster {
		s.first.text, s.first.namespace = q.Namespace, uint16(min(len(q.Namespace), maxName))
	}
	if s.hasOwn {
		s.own = uidOf(q.Own.UID)
	}
	switch q.Match {
	case v1alpha1.LookupMatchAllRequestKeys:
		s.allRequestKeys()
	case v1alpha1.LookupMatchAllStoredKeys:
		s.allStoredKeys()
	default:
		s.any()
	}
	if s.tooMany != nil {
		return Result{}, s.tooMany
	}
	out := Result{Values: make([]Value, 0, len(s.found))}
	slices.SortFunc(s.found, compareObjects)
	for _, o := range s.found {
		out.Values = append(out.Values, o.value())
	}
	return out, nil
}

func (v *View) check(namespace string) error {
	if v.full != "" {
		return fmt.Errorf("the lookup is incomplete: %s", v.full)
	}
	if reason := v.faults[namespace]; reason != "" {
		return fmt.Errorf("the lookup is incomplete: %s", reason)
	}
	return nil
}

// any finds objects with one of the keys.
func (s *search) any() {
	several := len(s.query.Keys) > 1
	seen := map[*object]struct{}{}
	for _, key := range s.query.Keys {
		s.each(key, func(o *object) bool {
			if several {
				if _, ok := seen[o]; ok {
					return true
				}
				seen[o] = struct{}{}
			}
			return s.add(o)
		})
	}
}

// allStoredKeys finds objects all of whose keys are keys of the request, by the first of them.
func (s *search) allStoredKeys() {
	for _, key := range s.query.Keys {
		s.each(key, func(o *object) bool {
			return o.keys[0] != key || !s.hasAll(s.query.Keys, o.keys) || s.add(o)
		})
	}
}

// allRequestKeys finds objects that have every key of the request, among those with the rarest one.
func (s *search) allRequestKeys() {
	rarest, fewest := "", maxVisits
	for _, key := range s.query.Keys {
		count := 0
		s.each(key, func(*object) bool {
			count++
			return count < fewest
		})
		if count < fewest {
			rarest, fewest = key, count
		}
	}
	s.each(rarest, func(o *object) bool { return !s.hasAll(o.keys, s.query.Keys) || s.add(o) })
}

// hasAll reports whether a sorted list has every key of another one.
func (s *search) hasAll(all, keys []string) bool {
	for _, key := range keys {
		if !s.visit() {
			return false
		}
		if _, ok := slices.BinarySearch(all, key); !ok {
			return false
		}
	}
	return true
}

func (s *search) visit() bool {
	if s.visits++; s.visits > maxVisits {
		s.tooMany = fmt.Errorf("more than %d keys of objects are compared: use keys that fewer objects have", maxVisits)
	}
	return s.tooMany == nil
}

// add adds an object to the result, unless it is that of the request, and reports whether to continue.
func (s *search) add(o *object) bool {
	own := s.query.Own
	if s.hasOwn && o.uid == s.own || own.IsStored && o.namespaceText() == own.Namespace && o.nameText() == own.Name {
		return true
	}
	if len(s.found) == MaxValues {
		s.tooMany = fmt.Errorf("more than %d objects are found: use keys that fewer objects have", MaxValues)
		return false
	}
	s.found = append(s.found, o)
	return s.tooMany == nil
}

// each visits the objects with a key, in order, until visit returns false.
func (s *search) each(key string, visit func(*object) bool) {
	if s.tooMany != nil {
		return
	}
	inNamespace := s.definition.Scope != v1alpha1.LookupScopeCluster
	s.pairs.AscendGreaterOrEqual(pair{key, s.first}, func(p pair) bool {
		if p.key != key || inNamespace && p.object.namespaceText() != s.query.Namespace {
			return false
		}
		return s.visit() && visit(p.object)
	})
}
