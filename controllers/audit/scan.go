package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxRestarts is the number of times that a list is begun again because its continue
	// token has expired.
	maxRestarts = 3
	// pageSize is the number of objects that one request lists: few, since other requests
	// wait while the API server encodes a page. A page that is read too slowly, and that the
	// API server therefore cuts off, halves it for the resource.
	pageSize, minPageSize = 100, 10
	// maxDeleted limits the objects that are remembered as deleted during a scan. With more,
	// another scan follows.
	maxDeleted = 100_000
)

// scanPass is one scan of the objects of a resource.
type scanPass struct {
	*resource // only its immutable fields; the rest belongs to results

	slots   []slot // copies
	pending []bool // by slot: its verdicts are of an older version
	scan    uint32
	omitted int // objects without room for their results
	skipped int // objects that could not be decoded
	stored  policy.StoredObject
	// evaluators are made when an object needs them, by slot: those of ten thousand policies
	// take memory.
	evaluators []*audit.Evaluator
}

// next returns the pass that is due next: first of changed policies, then of everything.
func (r *results) next(now time.Time, interval time.Duration) *scanPass {
	r.mu.Lock()
	defer r.mu.Unlock()
	var due *resource
	for _, known := range r.resources {
		if now.Before(known.retryAt) || !known.isDue(now, interval) {
			continue
		}
		if due == nil || known.scanned.Before(due.scanned) || known.scanned.Equal(due.scanned) && known.String() < due.String() {
			due = known
		}
	}
	if due == nil {
		return nil
	}
	due.scan++
	due.deleted = map[objectID]struct{}{}
	p := &scanPass{resource: due, slots: slices.Clone(due.slots), pending: make([]bool, len(due.slots)), scan: due.scan, evaluators: make([]*audit.Evaluator, len(due.slots))}
	for i, s := range p.slots {
		p.pending[i] = s.done != s.version
	}
	return p
}

func (k *resource) isDue(now time.Time, interval time.Duration) bool {
	return k.refill || !now.Before(k.scanned.Add(interval)) || slices.ContainsFunc(k.slots, func(s slot) bool { return s.done != s.version })
}

// scan lists the objects of a resource and evaluates what has changed.
func (s *Scanner) scan(ctx context.Context, current *results, p *scanPass) {
	err := s.list(ctx, current, p, func(version string) { s.watchDeletions(ctx, current, p.GroupVersionResource, version) })
	if ctx.Err() != nil {
		return
	}
	current.finish(p, err, time.Now())
	if err != nil {
		s.options.Log.V(1).Info("scan failed", "resource", p.String(), "error", err.Error())
		if apierrors.IsNotFound(err) {
			s.options.Resources.Refresh()
		}
	}
}

// list visits every object. If a continue token has expired and an API server offers no
// other, the list begins again: objects that were visited and have not changed since are not
// evaluated again.
func (s *Scanner) list(ctx context.Context, current *results, p *scanPass, begun func(version string)) (err error) {
	for range maxRestarts {
		began := time.Now()
		p.omitted = 0
		err = s.reader.List(ctx, p.GroupVersionResource, p.page, begun, func(raw []byte) error {
			s.visit(ctx, current, p, raw)
			err := s.budget.spend(ctx, time.Since(began))
			began = time.Now()
			return err
		})
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			break
		}
	}
	return err
}

// visit evaluates the policies whose result for an object is not known. The evaluator
// recovers panics of policies; one outside of it must not end admission on this replica.
func (s *Scanner) visit(ctx context.Context, current *results, p *scanPass, raw []byte) {
	defer func() {
		if value := recover(); value != nil {
			p.skipped++
			s.options.Log.Error(policy.PanicError(value), "an object could not be audited", "resource", p.String(), "stack", string(debug.Stack()))
		}
	}()
	o, err := objects.New(raw, p.GroupVersionResource, p.kind)
	if err != nil {
		p.skipped++
		return
	}
	version := versionOf(o.ResourceVersion, s.namespaceVersion(ctx, p, o))
	id := idOf(o.UID)
	todo, hasRoom := current.todo(p, o, id, version)
	if !hasRoom {
		p.omitted++
		return
	}
	got := make([]policy.Audited, len(todo))
	p.stored.Next()
	for i, slot := range todo {
		host := *p.slots[slot].host
		host.Stored = &p.stored
		got[i] = p.evaluator(slot).Evaluate(ctx, &o.Object, host)
	}
	s.metrics.evaluations.Add(float64(len(todo)))
	if ctx.Err() == nil { // otherwise they are errors
		current.store(p, o, id, version, todo, got)
	}
}

func (p *scanPass) evaluator(slot int) *audit.Evaluator {
	if p.evaluators[slot] == nil {
		t := &p.slots[slot].target
		p.evaluators[slot] = audit.NewEvaluator(t.policy, t.version.compiled, t.exempt)
	}
	return p.evaluators[slot]
}

// namespaceVersion returns the version of the namespace of an object, whose labels policies
// read.
func (s *Scanner) namespaceVersion(ctx context.Context, p *scanPass, o *objects.Object) string {
	if !p.namespaced {
		return ""
	}
	ns, err := s.host.Namespaces.GetNamespace(ctx, o.Namespace)
	if err != nil {
		return ""
	}
	return ns.ResourceVersion
}

// todo returns the slots to evaluate for an object, and whether its results can be kept.
func (r *results) todo(p *scanPass, o *objects.Object, id objectID, version uint64) (slots []int, hasRoom bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := p.objects[id]
	isNew := !ok || rec.version != version
	if !isNew && rec.scan == p.scan { // the list was begun again
		return nil, true
	}
	if !ok && !r.hasRoom(p.resource, o.Namespace) {
		return nil, false
	}
	var out []int
	for i := range p.slots {
		if isNew || p.pending[i] || r.lacksLine(pairKey{p.slots[i].name, o.Namespace}, line{id: id, kind: p.kind, name: o.Name, verdict: rec.verdict(i)}) {
			out = append(out, i)
		}
	}
	return out, true
}

// store keeps the results for an object.
func (r *results) store(p *scanPass, o *objects.Object, id objectID, version uint64, todo []int, got []policy.Audited) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, deleted := p.resource.deleted[id]; deleted {
		return
	}
	rec, ok := p.objects[id]
	if !ok {
		rec = record{namespace: unique.Make(o.Namespace)}
		r.records++
		p.sizes[rec.namespace]++
	}
	after := make([]byte, len(p.slots))
	for i := range after {
		after[i] = byte(rec.verdict(i))
	}
	for j, i := range todo {
		name := p.slots[i].name
		key := pairKey{name, o.Namespace}
		before, now := rec.verdict(i), verdictOf(got[j].Decision)
		r.count(name, o.Namespace, before, -1)
		r.count(name, o.Namespace, now, 1)
		after[i] = byte(now)
		if now == fail || now == warn || now == failed {
			r.addLine(key, newLine(id, o, p.kind, p.Resource, got[j]))
		} else {
			r.freeLine(p.resource, key, id)
		}
	}
	if len(todo) > 0 || !ok {
		rec.verdicts = unique.Make(string(after))
	}
	rec.version, rec.scan = version, p.scan
	p.objects[id] = rec
}

// finish ends a pass. After an error, earlier results stay.
func (r *results) finish(p *scanPass, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := p.resource
	forgotten := len(known.deleted) == maxDeleted
	known.deleted = nil
	r.changed = true
	if err != nil {
		gone := apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
		known.retryAt, known.failure = now.Add(retryInterval), explain(known.GroupResource(), err)
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
			known.page = max(known.page/2, minPageSize)
		}
		known.denied = gone || apierrors.IsForbidden(err)
		if gone { // there are no objects
			for id := range known.objects {
				r.forget(known, id)
			}
		}
		return
	}
	known.refill = forgotten
	before := len(known.objects)
	for id, rec := range known.objects {
		if rec.scan != p.scan {
			r.forget(known, id)
		}
	}
	known.refill = known.refill || p.omitted > 0 && len(known.objects) < before // there is room again
	for i := range known.slots {
		known.slots[i].done, known.slots[i].time = p.slots[i].version, now
	}
	known.scanned, known.failure, known.denied = now, "", false
	if p.omitted > 0 {
		known.failure = fmt.Sprintf("%d objects of %s were not evaluated, because the audit keeps results of at most %d objects of a namespace and %d in all",
			p.omitted, known.GroupResource(), r.maxRecordsOfNamespace, r.maxRecords)
	}
	if p.skipped > 0 {
		known.failure = fmt.Sprintf("%d objects of %s could not be decoded", p.skipped, known.GroupResource())
	}
}

// explain returns what an error of a list means, and how to fix it.
func explain(gr schema.GroupResource, err error) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate"):
		return fmt.Sprintf("Ostiary may not impersonate the ServiceAccount %s, which it uses for the audit: apply config/rbac of this version", account)
	case apierrors.IsForbidden(err):
		return forbidden(gr)
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return fmt.Sprintf("the API server no longer lists %s", gr)
	case errors.Is(err, objects.ErrTooLarge):
		return fmt.Sprintf("listing %s: %v: make it smaller or exclude the resource", gr, err)
	}
	return fmt.Sprintf("listing %s failed, and the results are of an earlier scan: %s", gr, truncate.String(err.Error(), 512))
}
