// Package results keeps the results of the audit: for each stored object the verdicts of the
// policies, their sums, and descriptions of violations. It decides what a scan has to evaluate,
// and turns snapshots into statuses and reports. Reading and writing belong to its callers.
package results

import (
	"hash/fnv"
	"maps"
	"sync"
	"time"
	"unique"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

// maxRecords bounds the objects whose results are kept, and maxRecordsOfNamespace those of a
// resource in one namespace, about 100 bytes each. Any user who may create objects adds to
// them.
const maxRecords, maxRecordsOfNamespace = 1_000_000, 100_000

// maxNewer limits the objects that are remembered as changed or deleted during a pass. With
// more, another pass follows.
const maxNewer = 100_000

// ObjectID is the UID of an object.
type ObjectID [16]byte

// IDOf returns the UID as bytes, or a hash of one that is not written as API servers do.
func IDOf(uid string) ObjectID {
	if id, err := uuid.Parse(uid); err == nil {
		return ObjectID(id)
	}
	return ObjectID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(uid)))
}

// Hash returns a hash of the versions that a result depends on.
func Hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// Subject is the generation of a policy that a result is about. The UID differs if a policy was
// deleted and another one has its name.
type Subject struct {
	UID        types.UID
	Generation int64
}

// SubjectOf returns the generation of a policy.
func SubjectOf(p *v1alpha1.WebhookPolicy) Subject {
	return Subject{UID: p.UID, Generation: p.Generation}
}

// Version differs between two versions of a policy, its params, its exceptions or what it looks up. It keeps the policy, so
// that no later one has the same address.
type Version struct {
	Subject  Subject
	Compiled *policy.Compiled
	Params   uint64
	// Exceptions differs if others have an effect.
	Exceptions uint64
	// Lookups differs if lookups can find other objects.
	Lookups uint64
}

// Problem is why a generation of a policy is not evaluated, or not everywhere.
type Problem struct {
	Subject Subject
	Why     string
}

// Resource is a resource with the versions of the policies that are evaluated on its objects,
// by the name of the policy.
type Resource struct {
	Kind     schema.GroupVersionKind
	Policies map[string]Version
}

// Pair is a policy and a namespace, empty for cluster-scoped objects.
type Pair struct{ Policy, Namespace string }

// record is what is kept of an object: about 64 bytes with its key. The verdicts, one byte
// for each slot of the resource, are shared between objects.
type record struct {
	version   uint64
	pass      uint32 // the last one that found the object
	verdicts  unique.Handle[string]
	namespace unique.Handle[string]
}

func (r record) verdict(slot int) Verdict {
	if r.verdicts == (unique.Handle[string]{}) { // a new object
		return Unmatched
	}
	if v := r.verdicts.Value(); slot < len(v) {
		return Verdict(v[slot])
	}
	return Unmatched
}

// verdictsOf returns the verdicts of some slots.
func (r record) verdictsOf(slots []int) unique.Handle[string] {
	out := make([]byte, len(slots))
	for i, slot := range slots {
		out[i] = byte(r.verdict(slot))
	}
	return unique.Make(string(out))
}

// slot holds what is known about a policy on the objects of a resource. The verdicts of all
// objects are complete for the version done.
type slot struct {
	policy        string
	version, done Version // done is the zero value before the first pass
	time          time.Time
	isMixed       bool // some verdicts can be of an earlier generation
}

// resource holds the results for the objects of a resource.
type resource struct {
	schema.GroupVersionResource
	kind schema.GroupVersionKind

	slots   []slot
	objects map[ObjectID]record
	sizes   map[unique.Handle[string]]int // objects by namespace
	pass    uint32                        // number of passes
	scanned time.Time
	retryAt time.Time // after a failure
	failure string    // of the last pass; the results are of an earlier one
	denied  bool      // the failure lasts until an administrator corrects it
	refill  bool      // a line has become free, or deletions may be unknown

	// newer has the objects that were deleted or evaluated again during a pass, because its list
	// can still contain an earlier state of them; nil without a pass.
	newer map[ObjectID]struct{}
}

// Table holds the results for all resources. It is safe for concurrent use.
type Table struct {
	limit int // lines for each pair

	maxRecords, maxRecordsOfNamespace int

	mu        sync.Mutex
	resources map[schema.GroupVersionResource]*resource
	counts    map[Pair]*Counts
	lines     map[Pair][]Line
	kept      int                // lines
	records   int                // objects of all resources
	problems  map[string]Problem // by policy
	planned   bool               // the policies are known
	changed   bool
}

// NewTable returns a table that describes a number of objects for each policy and namespace.
func NewTable(limit int) *Table {
	return &Table{
		limit: limit, maxRecords: maxRecords, maxRecordsOfNamespace: maxRecordsOfNamespace,
		resources: map[schema.GroupVersionResource]*resource{}, counts: map[Pair]*Counts{}, lines: map[Pair][]Line{},
		changed: true,
	}
}

// Set replaces the policies of each resource, and forgets what is no longer audited.
func (t *Table) Set(wanted map[schema.GroupVersionResource]Resource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for gvr, w := range wanted {
		known := t.resources[gvr]
		if known == nil {
			known = &resource{GroupVersionResource: gvr, objects: map[ObjectID]record{}, sizes: map[unique.Handle[string]]int{}}
			t.resources[gvr] = known
		}
		known.kind = w.Kind
		t.setPolicies(known, w.Policies)
	}
	for gvr, known := range t.resources {
		if _, ok := wanted[gvr]; !ok {
			t.setPolicies(known, nil)
			t.records -= len(known.objects)
			delete(t.resources, gvr)
		}
	}
}

// setPolicies keeps the verdicts of policies that stay, even if their version changes: until
// the next pass they are the best known ones.
func (t *Table) setPolicies(known *resource, policies map[string]Version) {
	kept := make([]slot, 0, len(policies))
	has := make(map[string]bool, len(known.slots))
	var from []int // by the new index, the old one
	for i, s := range known.slots {
		if version, ok := policies[s.policy]; ok {
			s.isMixed = s.isMixed || len(known.objects) > 0 && s.version.Subject != version.Subject
			s.version = version
			has[s.policy] = true
			kept, from = append(kept, s), append(from, i)
		}
	}
	if len(kept) < len(known.slots) {
		t.dropSlots(known, policies, from)
	}
	for name, version := range policies {
		if !has[name] {
			kept = append(kept, slot{policy: name, version: version})
		}
	}
	known.slots = kept
}

// dropSlots forgets the verdicts of the slots that are not in policies. The last argument has
// the indexes of the others.
func (t *Table) dropSlots(known *resource, policies map[string]Version, stay []int) {
	dropped := map[int]string{}
	for i, s := range known.slots {
		if _, ok := policies[s.policy]; !ok {
			dropped[i] = s.policy
		}
	}
	remaining := map[unique.Handle[string]]unique.Handle[string]{} // most objects share them
	for id, rec := range known.objects {
		namespace := rec.namespace.Value()
		for i, name := range dropped {
			pair := Pair{name, namespace}
			t.count(pair, rec.verdict(i), -1)
			t.removeLine(pair, id)
		}
		after, ok := remaining[rec.verdicts]
		if !ok {
			after = rec.verdictsOf(stay)
			remaining[rec.verdicts] = after
		}
		rec.verdicts = after
		known.objects[id] = rec
	}
}

func (t *Table) count(pair Pair, v Verdict, by int64) {
	if v == Unmatched {
		return
	}
	c := t.counts[pair]
	if c == nil {
		c = &Counts{}
		t.counts[pair] = c
	}
	c[v] += by
	t.changed = true
	if *c == (Counts{}) {
		delete(t.counts, pair)
	}
}

// findings is the number of objects that a policy finds in a namespace.
func (t *Table) findings(pair Pair) int64 {
	if c := t.counts[pair]; c != nil {
		return c.described()
	}
	return 0
}

// Remove forgets an object that was deleted.
func (t *Table) Remove(gvr schema.GroupVersionResource, id ObjectID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.resources[gvr]
	if known == nil {
		return
	}
	known.addNewer(id)
	t.forget(known, id)
}

// addNewer remembers an object during a pass.
func (k *resource) addNewer(id ObjectID) {
	if k.newer != nil && len(k.newer) < maxNewer {
		k.newer[id] = struct{}{}
	}
}

// HasFinding reports whether an object has a finding now.
func (t *Table) HasFinding(gvr schema.GroupVersionResource, id ObjectID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.resources[gvr]
	if known == nil {
		return false
	}
	rec := known.objects[id]
	for i := range known.slots {
		if rec.verdict(i).isDescribed() {
			return true
		}
	}
	return false
}

func (t *Table) forget(known *resource, id ObjectID) {
	rec, ok := known.objects[id]
	if !ok {
		return
	}
	for i := range known.slots {
		pair := Pair{known.slots[i].policy, rec.namespace.Value()}
		t.count(pair, rec.verdict(i), -1)
		t.freeLine(known, pair, id)
	}
	delete(known.objects, id)
	t.records--
	if known.sizes[rec.namespace]--; known.sizes[rec.namespace] == 0 {
		delete(known.sizes, rec.namespace)
	}
}

// Relist makes another pass of a resource due at a time.
func (t *Table) Relist(gvr schema.GroupVersionResource, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.resources[gvr]; known != nil {
		known.refill, known.retryAt = true, at
	}
}

// hasRoom reports whether the results of another object of a namespace can be kept.
func (t *Table) hasRoom(known *resource, namespace string) bool {
	return t.records < t.maxRecords && known.sizes[unique.Make(namespace)] < t.maxRecordsOfNamespace
}

// Has reports whether a resource is audited.
func (t *Table) Has(gvr schema.GroupVersionResource) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.resources[gvr] != nil
}

// SetProblems sets the problems by policy, after Set. It keeps the argument.
func (t *Table) SetProblems(problems map[string]Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.planned || !maps.Equal(t.problems, problems) {
		t.problems, t.planned, t.changed = problems, true, true
	}
}

// isComplete reports whether a pass of every resource has ended, except of those that cannot
// be listed.
func (t *Table) isComplete() bool {
	for _, known := range t.resources {
		if known.scanned.IsZero() && !known.denied {
			return false
		}
	}
	return t.planned
}

// TakeChanged reports whether results have changed since the last call.
func (t *Table) TakeChanged() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.changed
	t.changed = false
	return changed
}
