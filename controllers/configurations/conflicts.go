package configurations

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	// conflictThreshold is the number of repairs after which a configuration is
	// reported as contested.
	conflictThreshold = 5
	// fastRevert is the time after a repair within which a change counts as a
	// reaction to it. Only such reverts lead to back-off. Ostiary repairs slower
	// changes at once, however often they occur and however long a repair takes.
	fastRevert = 500 * time.Millisecond
	// initialBackoff is doubled up to maxBackoff.
	initialBackoff = time.Second
	maxBackoff     = time.Minute
	// identifyInterval is the least time between two reads of managedFields for
	// the same conflict. The read doubles the duration of a repair.
	identifyInterval = time.Minute
	// quietPeriod is the time without changes after which a conflict is forgotten.
	quietPeriod = 3 * time.Minute
)

// ConflictTracker tracks the configurations that other clients keep changing.
// Ostiary always restores them, with increasing back-off. It is safe for
// concurrent use.
type ConflictTracker struct {
	gauge       *prometheus.GaugeVec
	broadcaster events.Broadcaster
	// jitter randomizes back-off. Without it a client that writes at a fixed
	// interval could revert every repair right after it.
	jitter func(time.Duration) time.Duration

	mu    sync.Mutex
	byKey map[registration.Key]*conflict
}

// conflict is the state of one configuration that has been repaired.
type conflict struct {
	repairs      int
	lastRepair   time.Time     // start of the last repair
	driftSince   time.Time     // first observation of the present drift; zero without drift
	backoff      time.Duration // after the last repair, before jitter
	delay        time.Duration // backoff with jitter
	otherManager string        // for messages; empty until the configuration is contested
	identifiedAt time.Time     // last read of managedFields
}

// isFastRevert reports whether the present drift began within fastRevert of
// the last repair.
func (c *conflict) isFastRevert() bool { return c.driftSince.Sub(c.lastRepair) < fastRevert }

// isExpired reports whether nothing has changed the configuration for the
// quiet period.
func (c *conflict) isExpired(now time.Time) bool {
	return now.Sub(c.lastRepair) > c.backoff+quietPeriod
}

// unknownManager is reported if managedFields name no manager: they record the
// managers that set a field, not those that removed one or deleted the object.
const unknownManager = "another client (see the API server's audit log)"

// NewConflictTracker returns a ConflictTracker and registers its metric.
func NewConflictTracker(registry prometheus.Registerer) *ConflictTracker {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_configuration_conflict",
		Help: "1 for each generated configuration that another client keeps changing. Reported by the leader.",
	}, []string{"configuration"})
	registry.MustRegister(gauge)
	return &ConflictTracker{gauge: gauge, jitter: jitter, byKey: map[registration.Key]*conflict{}}
}

// jitter returns a random duration between d/2 and d.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // it is not secret
}

// OtherManagers returns, by the name of each contested configuration, a
// description of the client that keeps changing it.
func (c *ConflictTracker) OtherManagers() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for k, found := range c.byKey {
		if found.otherManager != "" {
			out[k.Name] = found.otherManager
		}
	}
	return out
}

// Subscribe returns a channel that receives after each change, until ctx ends.
func (c *ConflictTracker) Subscribe(ctx context.Context) <-chan struct{} {
	return c.broadcaster.Subscribe(ctx)
}

// repairDelay returns how long to wait before a drifted configuration is repaired.
func (c *ConflictTracker) repairDelay(k registration.Key, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil {
		return 0
	}
	if found.driftSince.IsZero() {
		found.driftSince = now
	}
	switch {
	case !found.isFastRevert():
		found.backoff, found.delay = 0, 0
	case found.repairs >= conflictThreshold && found.backoff == 0:
		found.backoff = initialBackoff
		found.delay = c.jitter(found.backoff)
	}
	return max(0, found.lastRepair.Add(found.delay).Sub(now))
}

// shouldIdentify reports whether to read the name of the client that changed a
// drifted configuration.
func (c *ConflictTracker) shouldIdentify(k registration.Key, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil || found.isExpired(now) || found.repairs+1 < conflictThreshold {
		return false
	}
	if known := found.otherManager != "" && found.otherManager != unknownManager; known && now.Sub(found.identifiedAt) < identifyInterval {
		return false
	}
	found.identifiedAt = now
	return true
}

// recordRepair records a successful repair, by its start time. Failed writes
// are not recorded: retries are no conflict.
func (c *ConflictTracker) recordRepair(k registration.Key, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil || found.isExpired(began) {
		found = &conflict{}
		c.byKey[k] = found
	}
	if found.backoff > 0 {
		found.backoff = min(2*found.backoff, maxBackoff)
		found.delay = c.jitter(found.backoff)
	}
	found.driftSince = time.Time{}
	found.repairs++
	found.lastRepair = began
}

// recordManager records the client that keeps changing a configuration, and
// reports whether it differs from the one on record.
func (c *ConflictTracker) recordManager(k registration.Key, manager string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil || found.otherManager == manager || found.otherManager != "" && manager == unknownManager {
		return false
	}
	found.otherManager = manager
	c.gauge.WithLabelValues(k.Name).Set(1)
	c.broadcaster.Notify()
	return true
}

// expire removes conflicts whose quiet period is over. It returns the time
// until the next one may expire, 0 if there is none.
func (c *ConflictTracker) expire(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var next time.Duration
	for k, found := range c.byKey {
		left := found.lastRepair.Add(found.backoff + quietPeriod).Sub(now)
		if left > 0 {
			next = min(cmp.Or(next, left), left)
			continue
		}
		delete(c.byKey, k)
		if found.otherManager != "" {
			c.gauge.DeleteLabelValues(k.Name)
			c.broadcaster.Notify()
		}
	}
	return next
}

// isBackingOff reports whether the repair of a configuration has to wait
// because another client keeps reverting it.
func (t *term) isBackingOff(p *pass, want registration.Configuration) bool {
	if !t.isRepair(want) {
		return false
	}
	wait := t.Conflicts.repairDelay(registration.KeyOf(want), t.Clock.Now())
	if wait > 0 {
		p.requeueWithin(wait)
	}
	return wait > 0
}

// isRepair reports whether the last write of this replica had the same content,
// so that another client must have changed the configuration since. New plans
// are applied at once.
func (t *term) isRepair(want registration.Configuration) bool {
	before := t.applied[registration.KeyOf(want)]
	return before != nil && equality.Semantic.DeepEqual(before, want)
}

// identifyManager records the client that keeps changing a configuration. Call
// it before the repair, which removes the client's name from managedFields.
func (t *term) identifyManager(ctx context.Context, k registration.Key, now time.Time) {
	if !t.Conflicts.shouldIdentify(k, now) {
		return
	}
	if manager := t.otherManager(ctx, k); t.Conflicts.recordManager(k, manager) {
		logr.FromContextOrDiscard(ctx).Info("configuration is contested", "configuration", k.Name, "by", manager)
	}
}

// otherManager describes the client that changed a configuration last, by its managedFields.
func (t *term) otherManager(ctx context.Context, k registration.Key) string {
	live, err := t.getLive(ctx, k)
	if err != nil || live == nil {
		return unknownManager
	}
	var manager string
	var latest time.Time
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == registration.FieldManager || entry.Time == nil || entry.Time.Time.Before(latest) {
			continue
		}
		manager, latest = entry.Manager, entry.Time.Time
	}
	if manager == "" {
		return unknownManager
	}
	return fmt.Sprintf("field manager %q", manager)
}
