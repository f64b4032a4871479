// Package schemas holds the schemas of the kinds that loaded policies mutate.
// They are read ahead of the requests, and read again when they change, on
// every replica.
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
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/resources"
)

const (
	// refresh is how often changed schemas are looked for. It is the interval at
	// which the API server's code looks for changes itself.
	refresh = 5 * time.Second
	// soon is how long after something was missing it is looked for again, at
	// first, and seldom in the end.
	soon   = time.Second
	seldom = 10 * time.Second
	// patience is how long a request waits for a schema that was not read ahead.
	patience = time.Second
	// maxKinds bounds the kinds of one rule that are read ahead: a rule for
	// everything is for more than anybody sends.
	maxKinds = 64
	// tries is how often what is missing is looked for before it counts as
	// broken, and no longer keeps a replica that starts from its work. The first
	// look may be too early: the list of schemas is then still on its way.
	tries = 3
	// grace is how long what a generation of a policy lacks counts as being on its
	// way: it takes a moment to read the schemas that it is the first to need.
	grace = 10 * time.Second
	// readyWithin is how long a replica that starts is held back in any case.
	readyWithin = time.Minute
)

// Resources tell the kinds of a rule.
type Resources interface {
	Kinds(rule admissionregistrationv1.Rule, limit int) []resources.Kind
	Subscribe(ctx context.Context) <-chan struct{}
	Refresh()
	Ready() error
}

type converter = managedfields.TypeConverter

// documents are the schemas of each group version. One that has subresources
// holds the schemas of their kinds too, whatever group those are of: Scale is
// in that of deployments, and not in its own.
type documents map[schema.GroupVersion]converter

// find finds the document for a kind: its own, if that has it, or any other.
// Without either its own still serves for what does not need the schema.
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

// Converters find schemas by kind. They implement policy.TypeConverters and
// manager.Runnable.
type Converters struct {
	manager   patch.TypeConverterManager
	resources Resources
	log       logr.Logger
	listeners events.Broadcaster
	wake      events.Signal
	lasting   int // how many policies lacked something for long, at the last read

	known atomic.Pointer[documents] // replaced as a whole; requests read it

	mu       sync.Mutex
	policies []*v1alpha1.WebhookPolicy
	since    map[types.UID]want                    // of those policies
	fetching map[schema.GroupVersion]chan struct{} // closed when done
	wanted   bool                                  // Want has been called
	looks    int                                   // how often what was wanted first has been looked for
	warm     bool                                  // it has been read, or is broken
	deadline <-chan time.Time
}

// want says since when a generation of a policy is wanted.
type want struct {
	generation int64
	since      time.Time
}

// New makes converters that know nothing yet. The manager is run by Start.
func New(m patch.TypeConverterManager, r Resources, log logr.Logger) *Converters {
	c := &Converters{manager: m, resources: r, log: log, wake: events.NewSignal(), fetching: map[schema.GroupVersion]chan struct{}{}}
	c.known.Store(&documents{})
	return c
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica
// answers requests.
func (c *Converters) NeedLeaderElection() bool { return false }

// Subscribe gives a channel that receives after each change of what Missing
// says, until ctx ends.
func (c *Converters) Subscribe(ctx context.Context) <-chan struct{} {
	return c.listeners.Subscribe(ctx)
}

// Start implements manager.Runnable: it keeps the schemas until ctx ends.
func (c *Converters) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.manager.Run(ctx) })
	defer running.Wait()
	changed := c.resources.Subscribe(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := soon
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-changed:
			c.listeners.Notify()
		case <-c.wake:
			pause = soon
		}
		if c.read() {
			pause = soon
			timer.Reset(refresh)
			continue
		}
		c.resources.Refresh()
		timer.Reset(pause)
		pause = min(2*pause, seldom)
	}
}

// Want keeps the schemas that these policies mutate by from now on. The
// policies are not changed.
func (c *Converters) Want(policies []*v1alpha1.WebhookPolicy) {
	c.mu.Lock()
	c.policies = slices.DeleteFunc(slices.Clone(policies), func(p *v1alpha1.WebhookPolicy) bool { return len(p.Spec.Mutations) == 0 })
	c.since = since(c.since, c.policies, time.Now())
	if !c.wanted {
		c.wanted, c.deadline = true, time.After(readyWithin)
	}
	c.mu.Unlock()
	c.wake.Send()
}

// since keeps when each policy's generation was wanted first.
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

// Ready is an error while what was wanted first, when this replica started, has
// not been looked for. Once nil it stays so.
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

// GetTypeConverter implements policy.TypeConverters. A schema that was not read
// ahead is read now; the request waits for it, but not for long.
func (c *Converters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	found, _ := c.known.Load().find(kind)
	if found != nil {
		return found
	}
	select {
	case <-c.fetch(kind):
	case <-time.After(patience):
	}
	found, _ = c.known.Load().find(kind)
	return found
}

// fetch reads the schema of a group version, once for all who ask meanwhile.
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

// update changes a copy of what is known, and reports whether it is another.
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

// read reads the schemas that are wanted, and again those that are known: the
// manager reads only what has changed. It reports whether nothing is missing.
func (c *Converters) read() (complete bool) {
	c.mu.Lock()
	policies, wanted := c.policies, c.wanted
	c.mu.Unlock()
	groupVersions := maps.Clone(*c.known.Load())
	for _, p := range policies {
		for _, kind := range c.kinds(p) {
			groupVersions[kind.GroupVersion()] = nil
			groupVersions[kind.Served] = nil
		}
	}
	changed := false
	for gv := range groupVersions {
		// One that cannot be read just now stays as it was.
		if found := c.manager.GetTypeConverter(gv.WithKind("")); found != nil {
			changed = c.update(func(known documents) { known[gv] = found }) || changed
		}
	}
	missing, lasting := c.count(policies)
	complete = c.resources.Ready() == nil && missing == 0
	if wanted {
		c.looked(complete)
	}
	if changed || lasting != c.lasting {
		c.lasting = lasting
		c.listeners.Notify()
	}
	return complete
}

// count counts the policies that lack something, and those of them where that
// is no longer a matter of time.
func (c *Converters) count(policies []*v1alpha1.WebhookPolicy) (missing, lasting int) {
	for _, p := range policies {
		lack, passing := c.Missing(p)
		if lack != "" {
			missing++
		}
		if lack != "" && !passing {
			lasting++
		}
	}
	return missing, lasting
}

func (c *Converters) looked(complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resources.Ready() == nil {
		c.looks++
	}
	c.warm = c.warm || complete || c.looks >= tries
}

func (c *Converters) kinds(p *v1alpha1.WebhookPolicy) []resources.Kind {
	var out []resources.Kind
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

// Missing says what a policy's mutations lack to be applied, if anything. It is
// passing while that may be since it was not looked for long enough.
func (c *Converters) Missing(p *v1alpha1.WebhookPolicy) (missing string, passing bool) {
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

// missing takes rules with wildcards to be for whatever there is.
func (c *Converters) missing(p *v1alpha1.WebhookPolicy) string {
	if len(p.Spec.Mutations) == 0 {
		return ""
	}
	known := *c.known.Load()
	for i, r := range rulesOf(p) {
		if wild(r.Rule) {
			continue
		}
		kinds := c.resources.Kinds(r.Rule, maxKinds)
		if len(kinds) == 0 {
			return fmt.Sprintf("the API server has none of the resources in spec.matchConstraints.resourceRules[%d]: install what is to be mutated, or change the rule", i)
		}
		for _, kind := range kinds {
			if found, has := known.find(kind.GroupVersionKind); found == nil || (!has && applies(p)) {
				return fmt.Sprintf("the schema of %s in %s is not known: mutations of it fail until the API server publishes it", kind.Kind, kind.GroupVersion())
			}
		}
	}
	return ""
}

// applies reports whether a policy has a mutation that goes by the schema of
// the kind itself. A JSON patch does not.
func applies(p *v1alpha1.WebhookPolicy) bool {
	return slices.ContainsFunc(p.Spec.Mutations, func(m admissionregistrationv1.Mutation) bool {
		return m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration
	})
}

func wild(r admissionregistrationv1.Rule) bool {
	return slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIVersions, "*") ||
		slices.ContainsFunc(r.Resources, func(resource string) bool { return slices.Contains([]byte(resource), '*') })
}
