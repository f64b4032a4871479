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
	// patience is how often a configuration is put right before it is called
	// contested.
	patience = 5
	// hasty is how soon after a repair a change must be seen to be the work of
	// somebody who watches. Only those are backed off from: what is changed now
	// and then is put right at once, however often, and however long the repair
	// took.
	hasty = 500 * time.Millisecond
	// firstWait is doubled up to longestWait.
	firstWait   = time.Second
	longestWait = time.Minute
	// reask is how soon the API server is asked again who the rival is, where that
	// is known: each repair would be twice as slow.
	reask = time.Minute
	// peace is how long a configuration has to be left alone to be forgotten.
	peace = 3 * time.Minute
)

// Contests are the configurations that somebody else keeps changing. They are
// always put right again, but ever later where it does not last.
type Contests struct {
	gauge     *prometheus.GaugeVec
	listeners events.Broadcaster
	// shorten makes waits unequal. Who changes something each second, whatever
	// happens to it, would else come just after a repair every time.
	shorten func(time.Duration) time.Duration

	mu    sync.Mutex
	byKey map[key]*contest
}

// contest is what is known of one configuration that had to be put right.
type contest struct {
	repairs int
	last    time.Time     // of the repairs
	seen    time.Time     // since when it has to be put right again; zero while it has not
	wait    time.Duration // after the last repair, at the most
	delay   time.Duration // what is made of it
	rival   string        // in words; empty until it is contested
	asked   time.Time     // when the API server was asked who that is
}

// hasty reports whether the change came so soon after the last repair that
// somebody must have waited for that.
func (c *contest) hasty() bool { return c.seen.Sub(c.last) < hasty }

// over reports whether the configuration has been left alone for long enough to
// be forgotten.
func (c *contest) over(now time.Time) bool { return now.Sub(c.last) > c.wait+peace }

// unnamed is a rival who has left no name: managedFields tell who has set a
// field, not who has emptied or deleted something.
const unnamed = "somebody whom the API server's audit log names"

// NewContests makes a register of contests, and its metric.
func NewContests(registry prometheus.Registerer) *Contests {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_configuration_contested",
		Help: "1 for each generated configuration that somebody else keeps changing. Reported by the leader.",
	}, []string{"configuration"})
	registry.MustRegister(gauge)
	return &Contests{gauge: gauge, shorten: half, byKey: map[key]*contest{}}
}

// half takes up to a half off a duration.
func half(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // nobody gains by guessing it
}

// Contested says, in words and by the names of configurations, who keeps
// changing them.
func (c *Contests) Contested() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for k, found := range c.byKey {
		if found.rival != "" {
			out[k.name] = found.rival
		}
	}
	return out
}

// Subscribe gives a channel that receives after each change, until ctx ends.
func (c *Contests) Subscribe(ctx context.Context) <-chan struct{} { return c.listeners.Subscribe(ctx) }

// wait is how long a configuration that has to be put right is left as it is.
func (c *Contests) wait(k key, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil {
		return 0
	}
	if found.seen.IsZero() {
		found.seen = now
	}
	switch {
	case !found.hasty():
		found.wait, found.delay = 0, 0
	case found.repairs >= patience && found.wait == 0:
		found.wait = firstWait
		found.delay = c.shorten(found.wait)
	}
	return max(0, found.last.Add(found.delay).Sub(now))
}

// due reports whether it is time to find out and name who changes a
// configuration that has to be put right again.
func (c *Contests) due(k key, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil || found.over(now) || found.repairs+1 < patience {
		return false
	}
	if known := found.rival != "" && found.rival != unnamed; known && now.Sub(found.asked) < reask {
		return false
	}
	found.asked = now
	return true
}

// repaired notes that a configuration was put right, by a write that began at a
// time. One that failed is no repair: what is tried again is not contested.
func (c *Contests) repaired(k key, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil || found.over(began) {
		found = &contest{}
		c.byKey[k] = found
	}
	if found.wait > 0 {
		found.wait = min(2*found.wait, longestWait)
		found.delay = c.shorten(found.wait)
	}
	found.seen = time.Time{}
	found.repairs++
	found.last = began
}

// name notes who keeps changing a configuration, and reports whether that is
// news.
func (c *Contests) name(k key, rival string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[k]
	if found == nil || found.rival == rival || found.rival != "" && rival == unnamed {
		return false
	}
	found.rival = rival
	c.gauge.WithLabelValues(k.name).Set(1)
	c.listeners.Notify()
	return true
}

// settle ends the contests of configurations that have been left alone, and
// says when the next may end; 0 is never.
func (c *Contests) settle(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var next time.Duration
	for k, found := range c.byKey {
		left := found.last.Add(found.wait + peace).Sub(now)
		if left > 0 {
			next = min(cmp.Or(next, left), left)
			continue
		}
		delete(c.byKey, k)
		if found.rival != "" {
			c.gauge.DeleteLabelValues(k.name)
			c.listeners.Notify()
		}
	}
	return next
}

// contested reports whether a configuration is left as it is for now because
// somebody changes it again and again.
func (r *Reconciler) contested(p *pass, want registration.Configuration) bool {
	if !r.again(want) {
		return false
	}
	wait := r.Contests.wait(keyOf(want), r.Clock.Now())
	if wait > 0 {
		p.later(wait)
	}
	return wait > 0
}

// again reports whether a configuration was written as it is wanted before, so
// that somebody else has changed it since. Only that can be contested: a new plan
// is carried out at once.
func (r *Reconciler) again(want registration.Configuration) bool {
	before := r.applied[keyOf(want)]
	return before != nil && equality.Semantic.DeepEqual(before, want)
}

// identify finds out who changes a configuration that is put right again, where
// that has happened often. It is asked before the repair, which takes the name
// away.
func (r *Reconciler) identify(ctx context.Context, k key, now time.Time) {
	if !r.Contests.due(k, now) {
		return
	}
	if rival := r.rival(ctx, k); r.Contests.name(k, rival) {
		logr.FromContextOrDiscard(ctx).Info("configuration is contested", "configuration", k.name, "by", rival)
	}
}

// rival says who changed a configuration last, as far as the API server knows.
func (r *Reconciler) rival(ctx context.Context, k key) string {
	live, err := r.live(ctx, k)
	if err != nil || live == nil {
		return unnamed
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
		return unnamed
	}
	return fmt.Sprintf("the field manager %q", manager)
}
