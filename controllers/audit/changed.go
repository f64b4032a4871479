package audit

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/audit/results"
)

const (
	// maxChanged and maxChangedOfNamespace limit the changed objects that wait, in all and in one
	// namespace, about 300 bytes each. The next scan reads the others.
	maxChanged, maxChangedOfNamespace = 10_000, 200
	// settleTime is the time from a change to the read, which further changes share. An object is
	// therefore read at most once in this time.
	settleTime = 5 * time.Second
	// rereadRate and rereadBurst limit reads, in each second and at once.
	rereadRate, rereadBurst = 2, 5
	// rereadInterval is the interval between looks for changed objects.
	rereadInterval = 500 * time.Millisecond
	rereadTimeout  = 10 * time.Second
)

// changedObject is an object with a finding that has changed since it was evaluated.
type changedObject struct {
	gvr             schema.GroupVersionResource
	id              results.ObjectID
	namespace, name string
	due             time.Time
}

// newChangedObject returns an object that shares no memory with its metadata.
func newChangedObject(gvr schema.GroupVersionResource, id results.ObjectID, o metav1.Object) changedObject {
	return changedObject{
		gvr: gvr, id: id, namespace: strings.Clone(o.GetNamespace()), name: strings.Clone(o.GetName()),
	}
}

func (o *changedObject) isSame(other changedObject) bool {
	return o.gvr == other.gvr && o.id == other.id
}

// changedObjects holds the objects to read again. Namespaces take turns, so that one whose
// objects change all the time does not delay the others. It is safe for concurrent use.
type changedObjects struct {
	limiter *rate.Limiter

	mu     sync.Mutex
	queues map[string][]changedObject // by namespace, in the order of due
	turns  []string                   // namespaces
	total  int
}

func newChangedObjects() *changedObjects {
	return &changedObjects{limiter: rate.NewLimiter(rereadRate, rereadBurst), queues: map[string][]changedObject{}}
}

// add adds an object, unless it waits already or too many do.
func (c *changedObjects) add(o changedObject, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.queues[o.namespace]
	if c.total >= maxChanged || len(queue) >= maxChangedOfNamespace || slices.ContainsFunc(queue, o.isSame) {
		return
	}
	if len(queue) == 0 {
		c.turns = append(c.turns, o.namespace)
	}
	o.due = now.Add(settleTime)
	c.queues[o.namespace] = append(queue, o)
	c.total++
}

// take returns the next object that is due, if the rate permits another read.
func (c *changedObjects) take(now time.Time) (o changedObject, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isDue := func(namespace string) bool { return !now.Before(c.queues[namespace][0].due) }
	i := slices.IndexFunc(c.turns, isDue)
	if i < 0 || !c.limiter.AllowN(now, 1) {
		return o, false
	}
	namespace := c.turns[i]
	c.turns = slices.Delete(c.turns, i, i+1)
	queue := c.queues[namespace]
	o = queue[0]
	c.total--
	if queue = slices.Delete(queue, 0, 1); len(queue) == 0 {
		delete(c.queues, namespace)
		return o, true
	}
	c.queues[namespace] = queue
	c.turns = append(c.turns, namespace)
	return o, true
}

// rereadNext reads the next changed object that is due. It is called between two objects of a
// scan, too, because a scan can take hours.
func (s *Scanner) rereadNext(ctx context.Context, table *results.Table, planned plan) error {
	o, ok := s.changed.take(time.Now())
	if !ok {
		return nil
	}
	wanted, isPlanned := planned[o.gvr]
	pass := table.Again(o.gvr)
	if !isPlanned || pass == nil {
		return nil
	}
	if err := s.budget.request(ctx); err != nil {
		return err
	}
	return s.reread(ctx, table, newScan(pass, wanted), o)
}

// rereadUntil reads changed objects until there is something else to do.
func (s *Scanner) rereadUntil(
	ctx context.Context, table *results.Table, planned plan, changes <-chan struct{}, poll <-chan time.Time,
) error {
	tick := time.NewTicker(rereadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes:
			return nil
		case <-poll:
			return nil
		case <-tick.C:
			if err := s.rereadNext(ctx, table, planned); err != nil {
				return err
			}
		}
	}
}

// reread evaluates a changed object. After an error of the API server, the next scan does.
func (s *Scanner) reread(ctx context.Context, table *results.Table, of *scan, o changedObject) error {
	began := time.Now()
	answered := func() error {
		began = time.Now()
		return nil
	}
	var isDone bool
	visit := func(raw []byte) error {
		got := s.visit(ctx, table, of, raw)
		isDone = got == nil || got.Name != o.name || results.IDOf(got.UID) == o.id
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	// The role for the audit permits lists, and one by name is as cheap as a get.
	from := objects.Collection{Client: s.reader.Client, Resource: o.gvr, Namespace: o.namespace}
	byName := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", o.name).String(), Limit: 1}
	_, err := from.List(limited, byName, answered, visit)
	switch {
	case err == nil && !isDone, apierrors.IsNotFound(err):
		table.Remove(o.gvr, o.id) // another object of the same name waits for the scan
	case err != nil:
		s.options.Log.V(1).Info("reading a changed object failed", "resource", o.gvr.String(), "error", err.Error())
	}
	return s.budget.spend(ctx, time.Since(began))
}
