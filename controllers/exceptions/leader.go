package exceptions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/versionskew"
)

const (
	fieldManager = "ostiary-status"
	// interval is the time between two comparisons of all statuses, without a change, and minInterval
	// with one.
	interval    = 3 * time.Second
	minInterval = 500 * time.Millisecond
	// writers is the number of statuses that are written concurrently, and maxWrites that of one
	// comparison.
	writers      = 8
	maxWrites    = 200
	writeTimeout = 10 * time.Second
	// usesInterval is the time between two writes of the uses of an exception, and maxUsesWrites
	// their number in one comparison.
	usesInterval  = time.Minute
	maxUsesWrites = 20
	// maxExcluded is the number of exceptions that wait for a status that says that they are left out.
	maxExcluded = 1000
)

// Leader writes the status of every exception.
type Leader struct {
	Client   client.Client
	Store    *Store
	Policies *policies.Store
	// Compiler returns what compiles conditions.
	Compiler func() exceptions.Compiler
	// Live returns all live replicas, and Peers the others in comparison with this one.
	Live    func(context.Context) ([]replicas.Replica, error)
	Peers   func(context.Context) (versionskew.Peers, error)
	Changes []func(context.Context) <-chan struct{}
	Events  clientevents.EventRecorder
	Log     logr.Logger
	// Registerer registers the metrics; nil disables them.
	Registerer prometheus.Registerer

	totals *totals
	tally  tally
}

// Run writes statuses until ctx ends.
func (l *Leader) Run(ctx context.Context) error {
	if l.totals == nil {
		l.totals = newTotals(l.Registerer)
	}
	defer l.totals.reset()
	l.tally = tally{}
	changes := events.Merge(ctx, append([]func(context.Context) <-chan struct{}{l.Store.Subscribe, l.Policies.Subscribe}, l.Changes...)...)
	for wait := minInterval; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		more, err := l.pass(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error(err, "writing the statuses of exceptions failed, retrying")
		}
		if wait = minInterval; !more {
			select {
			case <-ctx.Done():
			case <-changes:
			case <-time.After(interval):
			}
		}
	}
}

// pass writes the statuses that differ. more is true if some wait.
func (l *Leader) pass(ctx context.Context) (more bool, err error) {
	c, err := l.observe(ctx)
	if c == nil || err != nil {
		return false, err
	}
	return l.writeAll(ctx, c)
}

func (l *Leader) writeAll(ctx context.Context, c *conditions) (more bool, err error) {
	wanted, more := l.compare(c, l.Store.records())
	errs := make([]error, len(wanted)) // one that fails does not stop others
	slots := make(chan struct{}, writers)
	var running sync.WaitGroup
	for i := range wanted {
		slots <- struct{}{}
		running.Go(func() {
			errs[i] = l.write(ctx, &wanted[i])
			<-slots
		})
	}
	running.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return more, errs[i]
	}
	return more, nil
}

// observe returns nil before everything has been read.
func (l *Leader) observe(ctx context.Context) (*conditions, error) {
	state := l.Policies.State()
	if state == nil || l.Store.read() != nil {
		return nil, nil //nolint:nilnil,nilerr // the first state notifies
	}
	peers, err := l.Peers(ctx)
	if err != nil {
		return nil, err
	}
	live, err := l.Live(ctx)
	if err != nil {
		return nil, err
	}
	l.tally.add(live)
	specs := make(map[string]*v1alpha1.WebhookPolicySpec, len(state.Entries))
	for _, e := range state.Entries {
		p, _ := e.Effective()
		specs[p.Name] = &p.Spec
	}
	return &conditions{
		now: time.Now(), guarded: l.Store.guarded(), policies: specs, compiler: l.Compiler(), peers: peers, index: l.Store.index.Load(),
	}, nil
}

// compare returns the statuses to write, those of conditions first.
func (l *Leader) compare(c *conditions, all []record) (wanted []status, more bool) {
	var counted totalCounts
	var used []status
	for i := range all {
		r := &all[i]
		s := status{record: r, now: c.now}
		s.active, s.reason, s.message = c.state(r, r.loaded())
		counted.add(c, &s)
		changed := l.tally.update(&s)
		switch {
		case s.differs() && len(wanted) < maxWrites:
			wanted = append(wanted, s)
		case s.differs():
			more = true
		case changed && len(used) < maxUsesWrites:
			used = append(used, s)
		}
	}
	l.tally.keep(all)
	l.totals.set(counted)
	return append(append(wanted, used...), l.excluded(c)...), more
}

// excluded returns the statuses of exceptions for which there is no memory.
func (l *Leader) excluded(c *conditions) (out []status) {
	for len(out) < maxWrites {
		select {
		case r := <-l.Store.excluded:
			s := status{record: r, now: c.now, used: r.status.used, lastUsed: r.status.lastUsed}
			if s.active, s.reason, s.message = l.Store.leftOut(r); s.differs() && !l.Store.keeps(r.Key) {
				out = append(out, s)
			}
		default:
			return out
		}
	}
	return out
}

// write applies a status. One of an exception that has changed meanwhile is not applied.
func (l *Leader) write(ctx context.Context, s *status) error {
	want := s.fields()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return fmt.Errorf("converting the status of exception %s: %w", s.Key, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kindOf(s.record)))
	u.SetNamespace(s.Namespace)
	u.SetName(s.Name)
	u.SetResourceVersion(s.current) // the API server ignores the UID in a status
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = l.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("writing the status of exception %s: %w", s.Key, err)
	}
	l.Store.wrote(s.record, u.GetResourceVersion(), &want)
	l.tally.wrote(s)
	l.record(s)
	return nil
}

func kindOf(r *record) string {
	if r.Namespace == "" {
		return "ClusterWebhookPolicyException"
	}
	return "WebhookPolicyException"
}

// record records an event when an exception begins to end soon. The status remembers that for the
// next leader.
func (l *Leader) record(s *status) {
	if s.reason != ReasonEndsSoon || s.record.status.ending {
		return
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.uid}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kindOf(s.record)))
	l.Events.Eventf(object, nil, corev1.EventTypeWarning, ReasonEndsSoon, "Expire", "%s", s.message)
}
