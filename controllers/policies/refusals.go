package policies

import (
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
	"github.com/ostiary/ostiary/internal/registration"
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

// conditions returns the rejected conditions.
func (r *Refusals) conditions() []string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// conditionReason returns the API server's reason to reject a condition, if it did.
func (r *Refusals) conditionReason(condition string) string {
	if r == nil || condition == "" {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why[condition]
}

// reason returns the API server's reason to reject this generation of a policy, if it
// did.
func (r *Refusals) reason(p *v1alpha1.WebhookPolicy) string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.texts[versionOf(p)]
}

// retain removes the rejections of policies that no longer exist.
func (r *Refusals) retain(entries map[types.UID]*Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for v := range r.texts {
		if e := entries[v.uid]; e == nil || (v.generation != e.Policy.Generation && (e.lastGood == nil || v.generation != e.lastGood.Policy.Generation)) {
			delete(r.texts, v)
		}
	}
}

// refusal returns the API server's reason to reject this generation of a policy, if it
// did. The leader knows it; other replicas read it from the policy's status, if they have
// an earlier generation to use. A new leader sends the registration again.
func (l *Loader) refusal(p *v1alpha1.WebhookPolicy, good *Entry) string {
	if text := l.Refusals.reason(p); text != "" || good == nil {
		return text
	}
	return refusedInStatus(p)
}

func refusedInStatus(p *v1alpha1.WebhookPolicy) string {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRegistered)
	if c == nil || c.Reason != ReasonRefused || c.ObservedGeneration != p.Generation {
		return ""
	}
	return c.Message
}

// relevantEvents selects the events that loading depends on: a new generation, a new
// help URL, or a status that reports or no longer reports a refusal.
func relevantEvents() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		DeleteFunc: func(event.DeleteEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1alpha1.WebhookPolicy)
			after, alsoOK := e.ObjectNew.(*v1alpha1.WebhookPolicy)
			return ok && alsoOK && ((refusedInStatus(before) == "") != (refusedInStatus(after) == "") || before.HelpURL() != after.HelpURL())
		},
	})
}

// lastGood returns the generation of a policy that was registered before this one, nil if
// there is none. It is used while the API server rejects the new one.
func (l *Loader) lastGood(p *v1alpha1.WebhookPolicy) *Entry {
	state := l.Store.State()
	if state == nil {
		return nil
	}
	old := state.Entries[p.UID]
	if old == nil {
		return nil
	}
	if stand := old.effective(); stand.Refusal == "" && stand.Accepted() {
		if _, ok, _ := state.Registered(old); ok {
			good := *stand
			good.lastGood = nil
			return &good
		}
	}
	return old.lastGood
}

// forgetLastGood removes the last good generation of policies whose new one is
// registered.
func (s *State) forgetLastGood() {
	for uid, e := range s.Entries {
		if e.lastGood == nil || e.effective() != e {
			continue
		}
		if _, ok, _ := s.Registered(e); ok {
			carried := *e
			carried.lastGood = nil
			s.Entries[uid] = &carried
		}
	}
}

// Only returns a plan of some policies, to find out which of them the API server rejects.
// Except for the members it equals the plan of all.
func (s *State) Only(names []string) registration.Plan {
	in := s.input
	in.Entries = nil
	for _, e := range s.Entries {
		if e.Planned && slices.Contains(names, e.Policy.Name) {
			in.Entries = append(in.Entries, e.effective().prepared)
		}
	}
	return registration.Build(in)
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
