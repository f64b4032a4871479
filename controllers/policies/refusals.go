package policies

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/rollout"
)

// ReasonRefused means that the API server rejects the registration of the latest
// generation of a policy.
const ReasonRefused = "Refused"

// Refusals holds the policies whose registration the API server rejects. The writer of
// configurations adds them. The loader omits them, or uses the previous generation. The
// zero value is empty.
type Refusals struct {
	listeners events.Broadcaster

	mu      sync.Mutex
	texts   map[version]string
	refused []string          // conditions
	why     map[string]string // by condition
}

// version is a generation of a policy.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(p *v1alpha1.WebhookPolicy) version { return version{p.UID, p.Generation} }

// Add adds the API server's rejection of a planned generation, and notifies the loader.
func (r *Refusals) Add(e *Entry, text string) {
	r.mu.Lock()
	if r.texts == nil {
		r.texts = map[version]string{}
	}
	r.texts[versionOf(e.effective().Policy)] = text
	r.mu.Unlock()
	r.listeners.Notify()
}

// AddCondition adds the API server's rejection of a delegated condition, and notifies the
// loader. It returns the number of rejected conditions, and whether this one is new.
func (r *Refusals) AddCondition(condition, text string) (n int, added bool) {
	r.mu.Lock()
	if added = !slices.Contains(r.refused, condition); added {
		r.refused = append(slices.Clone(r.refused), condition)
		if r.why == nil {
			r.why = map[string]string{}
		}
		r.why[condition] = text
	}
	n = len(r.refused)
	r.mu.Unlock()
	if added {
		r.listeners.Notify()
	}
	return n, added
}

// refusedRegistrations are the rejections at one moment.
type refusedRegistrations struct {
	conditions []string
	reasons    map[string]string              // by condition
	texts      map[types.UID]map[int64]string // by policy and generation
}

// snapshot returns the rejections. There are none without Refusals.
func (r *Refusals) snapshot() refusedRegistrations {
	if r == nil {
		return refusedRegistrations{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := refusedRegistrations{conditions: r.refused, reasons: maps.Clone(r.why), texts: map[types.UID]map[int64]string{}}
	for v, text := range r.texts {
		if out.texts[v.uid] == nil {
			out.texts[v.uid] = map[int64]string{}
		}
		out.texts[v.uid][v.generation] = text
	}
	return out
}

// retain removes the rejections of generations that nothing can use again.
func (r *Refusals) retain(entries map[types.UID]*Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.texts, func(v version, _ string) bool {
		e := entries[v.uid]
		return e == nil || !e.hasGeneration(v.generation)
	})
}

// hasGeneration reports whether a generation is the latest or the previous one.
func (e *Entry) hasGeneration(generation int64) bool {
	return e.Policy.Generation == generation || e.previous != nil && e.previous.Policy.Generation == generation
}

// refusedInStatus returns the API server's reason to reject this generation that the leader
// has written to the status, empty if there is none.
func refusedInStatus(p *v1alpha1.WebhookPolicy) string {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRegistered)
	if c == nil || c.Reason != ReasonRefused || c.ObservedGeneration != p.Generation {
		return ""
	}
	return c.Message
}

// relevantEvents selects the events that loading depends on: a new generation, a new
// help URL or end of a suspension, another step of a rollout, or a status that reports or no longer reports a refusal.
func relevantEvents() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		DeleteFunc: func(event.DeleteEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1alpha1.WebhookPolicy)
			after, alsoOK := e.ObjectNew.(*v1alpha1.WebhookPolicy)
			return ok && alsoOK && ((refusedInStatus(before) == "") != (refusedInStatus(after) == "") ||
				!rollout.SameEffect(after, before) || before.HelpURL() != after.HelpURL() || !before.SuspendedUntil().Equal(after.SuspendedUntil()))
		},
	})
}

// Named returns the entries of policies, sorted by name.
func (s *State) Named(names []string) []*Entry {
	var out []*Entry
	for _, e := range s.Entries {
		if slices.Contains(names, e.Policy.Name) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int { return strings.Compare(a.Policy.Name, b.Policy.Name) })
	return out
}
