package results

import (
	"fmt"
	"slices"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/audit"
)

// Object is an object that a pass finds.
type Object struct {
	ID ObjectID
	// Version is a hash of what its results depend on, besides policies.
	Version              uint64
	Namespace, Name, UID string
	Controller           string // of the object, as audit.ControllerOf returns it
}

// Pass is one pass over the objects of a resource. It belongs to one goroutine, which passes
// each object to Todo, and then to Store what the policies say about it.
type Pass struct {
	resource *resource // only its immutable fields; the rest belongs to the Table
	slots    []slot    // copies
	pending  []bool    // by slot: its verdicts are of an older version
	number   uint32
	omitted  int // objects without room for their results
	isAgain  bool
}

// GVR returns the resource of the pass.
func (p *Pass) GVR() schema.GroupVersionResource { return p.resource.GroupVersionResource }

// Policies is the number of policies of the resource. Todo returns indexes below it.
func (p *Pass) Policies() int { return len(p.slots) }

// Policy returns the name of the policy with an index.
func (p *Pass) Policy(index int) string { return p.slots[index].policy }

// Restart is to be called when the list begins again.
func (p *Pass) Restart() { p.omitted = 0 }

// Next begins the pass that is due next: first of changed policies, then of everything. It
// returns nil if none is due.
func (t *Table) Next(now time.Time, interval time.Duration) *Pass {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due *resource
	for _, known := range t.resources {
		if now.Before(known.retryAt) || !known.isDue(now, interval) {
			continue
		}
		if due == nil || known.isBefore(due) {
			due = known
		}
	}
	if due == nil {
		return nil
	}
	due.pass++
	due.newer = map[ObjectID]struct{}{}
	p := &Pass{resource: due, slots: slices.Clone(due.slots), pending: make([]bool, len(due.slots)), number: due.pass}
	for i, s := range p.slots {
		p.pending[i] = s.done != s.version
	}
	return p
}

// Again returns a pass for objects whose current state is read before the next scan, also while
// another pass of the resource is being made; nil for an unknown resource. It evaluates objects
// that have changed and have results, needs no end, and must not be used after Set.
func (t *Table) Again(gvr schema.GroupVersionResource) *Pass {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.resources[gvr]
	if known == nil {
		return nil
	}
	slots := slices.Clone(known.slots)
	return &Pass{resource: known, slots: slots, pending: make([]bool, len(slots)), number: known.pass, isAgain: true}
}

func (k *resource) isDue(now time.Time, interval time.Duration) bool {
	changed := func(s slot) bool { return s.done != s.version }
	return k.refill || !now.Before(k.scanned.Add(interval)) || slices.ContainsFunc(k.slots, changed)
}

func (k *resource) isBefore(o *resource) bool {
	return k.scanned.Before(o.scanned) || k.scanned.Equal(o.scanned) && k.String() < o.String()
}

// Todo returns the policies to evaluate for an object, and whether its results can be kept.
func (t *Table) Todo(p *Pass, o *Object) (policies []int, hasRoom bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec, ok := p.resource.objects[o.ID]
	if p.isSuperseded(o.ID) || p.isAgain && !ok {
		return nil, false
	}
	isNew := !ok || rec.version != o.Version
	if !isNew && rec.pass == p.number { // the list was begun again
		return nil, true
	}
	if !ok && !t.hasRoom(p.resource, o.Namespace) {
		p.omitted++
		return nil, false
	}
	for i := range p.slots {
		like := Line{ID: o.ID, Kind: p.resource.kind, Name: o.Name, Verdict: rec.verdict(i).withoutChange()}
		if isNew || p.pending[i] || t.lacksLine(Pair{p.slots[i].policy, o.Namespace}, like) {
			policies = append(policies, i)
		}
	}
	return policies, true
}

// isSuperseded reports whether a later state of an object is known than the list of the pass has.
func (p *Pass) isSuperseded(id ObjectID) bool {
	_, ok := p.resource.newer[id]
	return ok && !p.isAgain
}

// Store keeps the results of some policies for an object.
func (t *Table) Store(p *Pass, o *Object, policies []int, got []audit.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := p.resource
	rec, ok := known.objects[o.ID]
	if p.isSuperseded(o.ID) || p.isAgain && !ok { // it was deleted meanwhile
		return
	}
	if p.isAgain {
		known.addNewer(o.ID)
	}
	if !ok {
		rec = record{namespace: unique.Make(o.Namespace)}
		t.records++
		known.sizes[rec.namespace]++
	}
	after := make([]byte, len(p.slots))
	for i := range after {
		after[i] = byte(rec.verdict(i))
	}
	for j, i := range policies {
		after[i] = byte(t.storeVerdict(p, o, i, rec.verdict(i), got[j]))
	}
	if len(policies) > 0 || !ok {
		rec.verdicts = unique.Make(string(after))
	}
	rec.version, rec.pass = o.Version, p.number
	known.objects[o.ID] = rec
}

// storeVerdict keeps the result of one policy for an object, and returns its verdict.
func (t *Table) storeVerdict(p *Pass, o *Object, index int, before Verdict, got audit.Result) Verdict {
	pair := Pair{p.slots[index].policy, o.Namespace}
	now := VerdictOf(got)
	if got.WouldChange {
		now |= wouldChange
	}
	t.count(pair, before, -1)
	t.count(pair, now, 1)
	if now.isDescribed() {
		t.addLine(pair, p.line(o, got))
	} else {
		t.freeLine(p.resource, pair, o.ID)
	}
	return now
}

// Failure says why a pass has not visited every object.
type Failure struct {
	// Message says what is wrong and how to fix it.
	Message string
	RetryAt time.Time
	// Denied means that the failure lasts until an administrator corrects it, and Gone that
	// there are no objects.
	Denied, Gone bool
}

// Fail ends a pass with a failure. Earlier results stay.
func (t *Table) Fail(p *Pass, f Failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := p.resource
	known.newer = nil
	t.changed = true
	known.failure, known.retryAt, known.denied = f.Message, f.RetryAt, f.Denied
	if !f.Gone {
		return
	}
	for id := range known.objects {
		t.forget(known, id)
	}
}

// Finish ends a pass that has visited every object, but for a number of unreadable ones.
func (t *Table) Finish(p *Pass, unreadable int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := p.resource
	t.changed = true
	known.refill = len(known.newer) == maxNewer // the state of further objects may be an earlier one
	known.newer = nil
	before := len(known.objects)
	for id, rec := range known.objects {
		if rec.pass != p.number {
			t.forget(known, id)
		}
	}
	known.refill = known.refill || p.omitted > 0 && len(known.objects) < before // there is room again
	for i := range known.slots {
		known.slots[i].done, known.slots[i].time = p.slots[i].version, now
		known.slots[i].isMixed = false
	}
	known.scanned, known.failure, known.denied = now, "", false
	if p.omitted > 0 {
		known.failure = fmt.Sprintf("%d objects of %s were not evaluated, because the audit keeps results of at most %d objects"+
			" of a namespace and %d in all", p.omitted, known.GroupResource(), t.maxRecordsOfNamespace, t.maxRecords)
	}
	if unreadable > 0 {
		known.failure = fmt.Sprintf("%d objects of %s could not be decoded", unreadable, known.GroupResource())
	}
}
