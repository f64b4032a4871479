// Package schemas caches the schemas of the kinds that loaded policies mutate. Every
// replica reads them before requests need them, and again when they change.
package schemas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/client-go/openapi"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/apiresources"
)

const (
	// refreshInterval is the interval of checks for changed schemas. The API server's
	// code has the same interval.
	refreshInterval = 5 * time.Second
	// minRetry and maxRetry bound the back-off while a schema is missing.
	minRetry = time.Second
	maxRetry = 10 * time.Second
	// fetchTimeout is how long a request waits for a schema that is not cached.
	fetchTimeout = time.Second
	// maxKinds is the maximum number of cached kinds per rule. A rule with wildcards
	// matches more kinds than requests use.
	maxKinds = 64
	// maxAttempts is the number of failed reads after which a missing schema no longer
	// keeps a starting replica unready. The first read may precede the list of schemas.
	maxAttempts = 3
	// grace is how long a schema that a new generation of a policy needs may be
	// missing before that counts as a permanent problem.
	grace = 10 * time.Second
	// readyTimeout is the longest time for which missing schemas keep a starting
	// replica unready.
	readyTimeout = time.Minute
)

// Resources finds the kinds that a rule matches.
type Resources interface {
	Kinds(rule admissionregistrationv1.Rule, limit int) []apiresources.Kind
	Subscribe(ctx context.Context) <-chan struct{}
	Refresh()
	Ready() error
}

type converter = managedfields.TypeConverter

// documents contains the schemas of each group version. A document also contains the
// kinds of its subresources, even if they belong to another group: the schema of
// Scale is in the document of deployments, but not in that of its own group.
type documents map[schema.GroupVersion]converter

// find returns the document with the schema of a kind, preferably that of its own
// group version. If there is none, it returns the latter, which is sufficient for
// mutations that need no schema.
func (d documents) find(kind schema.GroupVersionKind) (found converter, has bool) {
	own := d[kind.GroupVersion()]
	if holds(own, kind) {
		return own, true
	}
	for _, other := range d {
		if holds(other, kind) {
			return other, true
		}
	}
	return own, false
}

func holds(c converter, kind schema.GroupVersionKind) bool {
	if c == nil {
		return false
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	_, err := c.ObjectToTyped(object)
	return err == nil
}

// Converters finds schemas by kind. It implements policy.TypeConverters and
// manager.Runnable.
type Converters struct {
	published *published
	manager   patch.TypeConverterManager
	resources Resources
	log       logr.Logger
	listeners events.Broadcaster
	wake      events.Signal
	// permanent and unpublished are of the last read: the number of policies with a permanent
	// problem, and the cached group versions that the API server publishes no longer.
	permanent   int
	unpublished sets.Set[schema.GroupVersion]

	known atomic.Pointer[documents] // replaced as a whole; requests read it

	mu       sync.Mutex
	policies []*v1alpha1.WebhookPolicy
	since    map[types.UID]want                    // of those policies
	fetching map[schema.GroupVersion]chan struct{} // closed when done
	wanted   bool                                  // Want has been called
	attempts int                                   // number of reads since then
	warm     bool                                  // the replica is ready
	deadline <-chan time.Time
}

// want is when Want first received a generation of a policy.
type want struct {
	generation int64
	since      time.Time
}

// New returns Converters without schemas. Start reads them from the API.
func New(api openapi.Client, r Resources, log logr.Logger) *Converters {
	list := &published{Client: api}
	c := &Converters{
		published: list,
		manager:   patch.NewTypeConverterManager(nil, list),
		resources: r,
		log:       log,
		wake:      events.NewSignal(),
		fetching:  map[schema.GroupVersion]chan struct{}{},
	}
	c.known.Store(&documents{})
	return c
}

// NeedLeaderElection returns false: every replica evaluates requests.
func (c *Converters) NeedLeaderElection() bool { return false }

// Subscribe returns a channel that receives after each change of the result of
// Missing, until ctx ends.
func (c *Converters) Subscribe(ctx context.Context) <-chan struct{} {
	return c.listeners.Subscribe(ctx)
}

// Start implements manager.Runnable. It maintains the schemas until ctx ends.
func (c *Converters) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.manager.Run(ctx) })
	defer running.Wait()
	changed := c.resources.Subscribe(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := minRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-changed:
			c.listeners.Notify()
		case <-c.wake:
			pause = minRetry
		}
		if c.read() {
			pause = minRetry
			timer.Reset(refreshInterval)
			continue
		}
		c.resources.Refresh()
		timer.Reset(pause)
		pause = min(2*pause, maxRetry)
	}
}

// Want sets the policies whose schemas are cached. It does not change them.
func (c *Converters) Want(policies []*v1alpha1.WebhookPolicy) {
	c.mu.Lock()
	c.policies = slices.DeleteFunc(slices.Clone(policies), func(p *v1alpha1.WebhookPolicy) bool { return len(p.Spec.Mutations) == 0 })
	c.since = since(c.since, c.policies, time.Now())
	if !c.wanted {
		c.wanted, c.deadline = true, time.After(readyTimeout)
	}
	c.mu.Unlock()
	c.wake.Send()
}

// since returns when each policy's generation was first wanted.
func since(before map[types.UID]want, policies []*v1alpha1.WebhookPolicy, now time.Time) map[types.UID]want {
	after := make(map[types.UID]want, len(policies))
	for _, p := range policies {
		w, ok := before[p.UID]
		if !ok || w.generation != p.Generation {
			w = want{p.Generation, now}
		}
		after[p.UID] = w
	}
	return after
}

// Ready returns an error until the schemas for the first call of Want have been read
// or have failed maxAttempts times.
func (c *Converters) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.deadline:
		c.warm = true
	default:
	}
	if c.wanted && !c.warm {
		return errors.New("the schemas of the kinds to mutate are being read")
	}
	return nil
}

// GetTypeConverter implements policy.TypeConverters. It reads a schema that is not
// cached, and waits at most fetchTimeout.
func (c *Converters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	found, _ := c.known.Load().find(kind)
	if found != nil || !c.published.has(kind.GroupVersion()) {
		return found
	}
	select {
	case <-c.fetch(kind):
	case <-time.After(fetchTimeout):
	}
	found, _ = c.known.Load().find(kind)
	return found
}

// fetch reads the schema of a group version, once for all concurrent callers.
func (c *Converters) fetch(kind schema.GroupVersionKind) <-chan struct{} {
	gv := kind.GroupVersion()
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := c.fetching[gv]; done != nil {
		return done
	}
	done := make(chan struct{})
	c.fetching[gv] = done
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.fetching, gv)
			close(done)
		}()
		if found := c.manager.GetTypeConverter(kind); found != nil {
			c.update(func(known documents) { known[gv] = found })
		}
	}()
	return done
}

// update changes a copy of the documents and reports whether they differ.
func (c *Converters) update(change func(documents)) bool {
	for {
		before := c.known.Load()
		after := maps.Clone(*before)
		change(after)
		if c.known.CompareAndSwap(before, &after) {
			return !maps.Equal(*before, after)
		}
	}
}

// read reads all wanted and cached schemas and reports whether none is missing. The
// manager downloads only changed documents.
func (c *Converters) read() (complete bool) {
	c.mu.Lock()
	policies, wanted := c.policies, c.wanted
	c.mu.Unlock()
	cached := *c.known.Load()
	groupVersions := maps.Clone(cached)
	for _, p := range policies {
		for _, kind := range c.kinds(p) {
			groupVersions[kind.GroupVersion()] = nil
			groupVersions[kind.Served] = nil
		}
	}
	unpublished := sets.New[schema.GroupVersion]()
	changed := false
	for gv := range groupVersions {
		// A document that cannot be read stays cached: the list of an API server that has just
		// started may be incomplete.
		if !c.published.has(gv) {
			if cached[gv] != nil {
				unpublished.Insert(gv)
			}
			continue
		}
		if found := c.manager.GetTypeConverter(gv.WithKind("")); found != nil {
			changed = c.update(func(known documents) { known[gv] = found }) || changed
		}
	}
	c.logUnpublished(unpublished)
	missing, permanent := c.count(policies)
	complete = c.resources.Ready() == nil && missing == 0
	if wanted {
		c.recordAttempt(complete)
	}
	if changed || permanent != c.permanent {
		c.permanent = permanent
		c.listeners.Notify()
	}
	return complete
}

// logUnpublished logs which group versions are published no longer, or again.
func (c *Converters) logUnpublished(unpublished sets.Set[schema.GroupVersion]) {
	for gv := range unpublished.Difference(c.unpublished) {
		c.log.Info("the API server publishes the schemas of a group version no longer", "groupVersion", gv.String())
	}
	for gv := range c.unpublished.Difference(unpublished) {
		c.log.Info("the API server publishes the schemas of a group version again", "groupVersion", gv.String())
	}
	c.unpublished = unpublished
}

// count returns the number of policies with a missing schema, and of those for which
// that is permanent.
func (c *Converters) count(policies []*v1alpha1.WebhookPolicy) (missing, permanent int) {
	for _, p := range policies {
		problem, transient := c.Missing(p)
		if problem != "" {
			missing++
		}
		if problem != "" && !transient {
			permanent++
		}
	}
	return missing, permanent
}

func (c *Converters) recordAttempt(complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resources.Ready() == nil {
		c.attempts++
	}
	c.warm = c.warm || complete || c.attempts >= maxAttempts
}

func (c *Converters) kinds(p *v1alpha1.WebhookPolicy) []apiresources.Kind {
	var out []apiresources.Kind
	for _, r := range rulesOf(p) {
		out = append(out, c.resources.Kinds(r.Rule, maxKinds)...)
	}
	return out
}

func rulesOf(p *v1alpha1.WebhookPolicy) []admissionregistrationv1.NamedRuleWithOperations {
	if p.Spec.MatchConstraints == nil {
		return nil
	}
	return p.Spec.MatchConstraints.ResourceRules
}

// Missing returns why a policy's mutations cannot be applied; "" if they can. It is
// transient while the schemas may not have been read yet.
func (c *Converters) Missing(p *v1alpha1.WebhookPolicy) (missing string, transient bool) {
	if missing = c.missing(p); missing == "" {
		return "", false
	}
	if c.Ready() != nil {
		return missing, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.since[p.UID]
	return missing, !ok || w.generation != p.Generation || time.Since(w.since) < grace
}

// missing ignores rules with wildcards.
func (c *Converters) missing(p *v1alpha1.WebhookPolicy) string {
	if len(p.Spec.Mutations) == 0 {
		return ""
	}
	known := *c.known.Load()
	for i, r := range rulesOf(p) {
		if hasWildcard(r.Rule) {
			continue
		}
		kinds := c.resources.Kinds(r.Rule, maxKinds)
		if len(kinds) == 0 {
			return fmt.Sprintf("the API server has none of the resources in spec.matchConstraints.resourceRules[%d]: install the resource, or change the rule", i)
		}
		for _, kind := range kinds {
			if found, has := known.find(kind.GroupVersionKind); found == nil || (!has && needsSchema(p)) {
				return fmt.Sprintf("the schema of %s in %s is missing: mutations of this kind fail until the API server publishes it", kind.Kind, kind.GroupVersion())
			}
		}
	}
	return ""
}

// needsSchema reports whether a policy has an apply configuration. JSON patches need
// no schema of the kind.
func needsSchema(p *v1alpha1.WebhookPolicy) bool {
	return slices.ContainsFunc(p.Spec.Mutations, func(m admissionregistrationv1.Mutation) bool {
		return m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration
	})
}

func hasWildcard(r admissionregistrationv1.Rule) bool {
	return slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIVersions, "*") ||
		slices.ContainsFunc(r.Resources, func(resource string) bool { return slices.Contains([]byte(resource), '*') })
}
