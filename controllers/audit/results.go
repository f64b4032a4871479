package audit

import (
	"hash/fnv"
	"maps"
	"sync"
	"time"
	"unique"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

// verdict is the result of a policy for an object, in one byte.
type verdict byte

const (
	unmatched verdict = iota // or not evaluated, or skipped by a match condition
	pass
	fail
	warn
	failed // an error of the evaluation
	verdicts
)

// verdictOf returns the verdict for a decision.
func verdictOf(d policy.Decision) verdict {
	switch d {
	case policy.DecisionUnmatched, policy.DecisionSkip:
		return unmatched
	case policy.DecisionDeny, policy.DecisionAudit:
		return fail
	case policy.DecisionWarn, policy.DecisionRatchet:
		return warn
	case policy.DecisionError:
		return failed
	}
	return pass
}

// counts are numbers of objects by verdict.
type counts [verdicts]int64

func (c *counts) add(o counts) {
	for i := range c {
		c[i] += o[i]
	}
}

func (c counts) evaluated() int64  { return c[pass] + c[fail] + c[warn] + c[failed] }
func (c counts) violations() int64 { return c[fail] + c[warn] }

// lines is the number of objects that are described. A nil receiver has none.
func (c *counts) lines() int64 {
	if c == nil {
		return 0
	}
	return c.violations() + c[failed]
}

// objectID is the UID of an object.
type objectID [16]byte

// idOf returns the UID as bytes, or a hash of one that is not written as API servers do.
func idOf(uid string) objectID {
	if id, err := uuid.Parse(uid); err == nil {
		return objectID(id)
	}
	return objectID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(uid)))
}

// versionOf returns a hash of the versions that a result depends on.
func versionOf(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// maxRecords bounds the objects whose results are kept, and maxRecordsOfNamespace those of a
// resource in one namespace, about 100 bytes each. Any user who may create objects adds to
// them.
const maxRecords, maxRecordsOfNamespace = 1_000_000, 100_000

// record is what is kept of an object: about 64 bytes with its key. The verdicts, one byte
// for each slot of the resource, are shared between objects.
type record struct {
	version   uint64
	scan      uint32 // the last one that found the object
	verdicts  unique.Handle[string]
	namespace unique.Handle[string]
}

func (r record) verdict(slot int) verdict {
	if r.verdicts == (unique.Handle[string]{}) { // a new object
		return unmatched
	}
	if v := r.verdicts.Value(); slot < len(v) {
		return verdict(v[slot])
	}
	return unmatched
}

// verdictsOf returns the verdicts of some slots.
func (r record) verdictsOf(slots []int) unique.Handle[string] {
	out := make([]byte, len(slots))
	for i, slot := range slots {
		out[i] = byte(r.verdict(slot))
	}
	return unique.Make(string(out))
}

// target is a policy that is evaluated on the objects of a resource.
type target struct {
	name    string // of the policy, with a prefix for a native one
	policy  *v1alpha1.WebhookPolicy
	version targetVersion
	exempt  []string // namespaces
	host    *policy.Environment
}

// slot holds what is known about a target. The verdicts of all objects are complete for the
// version done.
type slot struct {
	target
	done targetVersion // the zero value before the first scan
	time time.Time
}

// resource holds the results for the objects of a resource.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool

	slots   []slot
	objects map[objectID]record
	sizes   map[unique.Handle[string]]int // objects by namespace
	scan    uint32                        // number of scans
	scanned time.Time
	retryAt time.Time // after a failure
	failure string    // of the last scan; the results are of an earlier one
	denied  bool      // the failure lasts until an administrator corrects it
	refill  bool      // a line has become free, or deletions may be unknown
	page    int64     // objects in a page

	// deleted has the objects that were deleted during the scan and that its list can still
	// contain; nil without a scan.
	deleted map[objectID]struct{}
}

// pairKey is a policy and a namespace, empty for cluster-scoped objects.
type pairKey struct{ policy, namespace string }

// results holds the results for all resources. It is safe for concurrent use.
type results struct {
	limit int // lines for each pair

	maxRecords, maxRecordsOfNamespace int

	mu        sync.Mutex
	resources map[schema.GroupVersionResource]*resource
	counts    map[pairKey]*counts
	lines     map[pairKey][]line
	kept      int               // lines
	records   int               // objects of all resources
	problems  map[string]string // by policy: why it is not evaluated, or not everywhere
	planned   bool              // the policies are known
	changed   bool

	summaries map[string]*v1alpha1.AuditStatus // by policy
}

func newResults(limit int) *results {
	return &results{limit: limit, maxRecords: maxRecords, maxRecordsOfNamespace: maxRecordsOfNamespace, resources: map[schema.GroupVersionResource]*resource{}, counts: map[pairKey]*counts{}, lines: map[pairKey][]line{}, changed: true}
}

// set replaces the targets of each resource, and forgets what is no longer one.
func (r *results) set(wanted map[schema.GroupVersionResource]wantedResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for gvr, w := range wanted {
		known := r.resources[gvr]
		if known == nil {
			known = &resource{GroupVersionResource: gvr, objects: map[objectID]record{}, sizes: map[unique.Handle[string]]int{}, page: pageSize}
			r.resources[gvr] = known
		}
		known.kind, known.namespaced = w.kind, w.namespaced
		r.setTargets(known, w.targets)
	}
	for gvr, known := range r.resources {
		if _, ok := wanted[gvr]; !ok {
			r.setTargets(known, nil)
			r.records -= len(known.objects)
			delete(r.resources, gvr)
		}
	}
}

// setTargets keeps the verdicts of targets that stay, even if their version changes: until
// the next scan they are the best known ones.
func (r *results) setTargets(known *resource, targets map[string]target) {
	kept := make([]slot, 0, len(targets))
	has := make(map[string]bool, len(known.slots))
	var from []int // by the new index, the old one
	for i, s := range known.slots {
		if t, ok := targets[s.name]; ok {
			s.target = t
			has[s.name] = true
			kept, from = append(kept, s), append(from, i)
		}
	}
	if len(kept) < len(known.slots) {
		r.dropSlots(known, targets, from)
	}
	for name, t := range targets {
		if !has[name] {
			kept = append(kept, slot{target: t})
		}
	}
	known.slots = kept
}

// dropSlots forgets the verdicts of the slots that are not in targets. The last argument has
// the indexes of the others.
func (r *results) dropSlots(known *resource, targets map[string]target, stay []int) {
	dropped := map[int]string{}
	for i, s := range known.slots {
		if _, ok := targets[s.name]; !ok {
			dropped[i] = s.name
		}
	}
	remaining := map[unique.Handle[string]]unique.Handle[string]{} // most objects share them
	for id, rec := range known.objects {
		namespace := rec.namespace.Value()
		for i, name := range dropped {
			r.count(name, namespace, rec.verdict(i), -1)
			r.removeLine(pairKey{name, namespace}, id)
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

func (r *results) count(policy, namespace string, v verdict, by int64) {
	if v == unmatched {
		return
	}
	key := pairKey{policy, namespace}
	c := r.counts[key]
	if c == nil {
		c = &counts{}
		r.counts[key] = c
	}
	c[v] += by
	r.changed = true
	if *c == (counts{}) {
		delete(r.counts, key)
	}
}

// remove forgets an object that was deleted.
func (r *results) remove(gvr schema.GroupVersionResource, id objectID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.resources[gvr]
	if known == nil {
		return
	}
	if known.deleted != nil && len(known.deleted) < maxDeleted {
		known.deleted[id] = struct{}{}
	}
	r.forget(known, id)
}

func (r *results) forget(known *resource, id objectID) {
	rec, ok := known.objects[id]
	if !ok {
		return
	}
	for i := range known.slots {
		key := pairKey{known.slots[i].name, rec.namespace.Value()}
		r.count(key.policy, key.namespace, rec.verdict(i), -1)
		r.freeLine(known, key, id)
	}
	delete(known.objects, id)
	r.records--
	if known.sizes[rec.namespace]--; known.sizes[rec.namespace] == 0 {
		delete(known.sizes, rec.namespace)
	}
}

// hasRoom reports whether the results of another object of a namespace can be kept.
func (r *results) hasRoom(known *resource, namespace string) bool {
	return r.records < r.maxRecords && known.sizes[unique.Make(namespace)] < r.maxRecordsOfNamespace
}

// freeLine removes the line of an object. If others have none for lack of space, the next
// scan finds one.
func (r *results) freeLine(known *resource, key pairKey, id objectID) {
	if r.removeLine(key, id) && r.counts[key].lines() > int64(len(r.lines[key])) {
		known.refill = true
	}
}

// has reports whether a resource is audited.
func (r *results) has(gvr schema.GroupVersionResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resources[gvr] != nil
}

// setProblems sets why policies are not evaluated, or not everywhere.
func (r *results) setProblems(problems map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planned = true
	if !maps.Equal(r.problems, problems) {
		r.problems, r.changed = problems, true
	}
}

// isComplete reports whether every resource has been scanned, except those that cannot be
// listed.
func (r *results) isComplete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.resources {
		if known.scanned.IsZero() && !known.denied {
			return false
		}
	}
	return r.planned
}

// takeChanged reports whether results have changed since the last call.
func (r *results) takeChanged() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.changed
	r.changed = false
	return changed
}
