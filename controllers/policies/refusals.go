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

// ReasonRefused is the reason of the condition Registered of a policy whose
// latest generation the API server refuses to register.
const ReasonRefused = "Refused"

// Refusals are the policies whose registration the API server refuses. Who
// writes the configurations finds them; the loader leaves them out, or goes
// back to the generation before. The zero value holds none.
type Refusals struct {
	listeners events.Broadcaster

	mu      sync.Mutex
	texts   map[version]string
	refused []string          // conditions
	why     map[string]string // by condition
}

// version is one generation of a policy.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(p *v1alpha1.WebhookPolicy) version { return version{p.UID, p.Generation} }

// Add remembers what the API server said of a policy's generation that is
// planned, and tells the loader.
func (r *Refusals) Add(e *Entry, text string) {
	r.mu.Lock()
	if r.texts == nil {
		r.texts = map[version]string{}
	}
	r.texts[versionOf(e.effective().Policy)] = text
	r.mu.Unlock()
	r.listeners.Notify()
}

// AddCondition remembers what the API server said of a condition that it does not
// evaluate, tells the loader, and gives how many these are. It reports whether
// that was news.
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

// conditions are those that the API server does not evaluate.
func (r *Refusals) conditions() []string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// conditionReason is what the API server said of a condition, if it refused it.
func (r *Refusals) conditionReason(condition string) string {
	if r == nil || condition == "" {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why[condition]
}

// reason is what the API server said of this generation of a policy, if it refused it.
func (r *Refusals) reason(p *v1alpha1.WebhookPolicy) string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.texts[versionOf(p)]
}

// retain forgets the refusals of what is gone.
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

// refusal is what the API server said of this generation of a policy, if it
// refused it. The replica that writes configurations was told; others read it
// in the policy's status, as far as they have an earlier generation to go back
// to. One that has just started asks the API server again when it leads.
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

// lastGood is the generation of a policy that the API server carried before
// this one, nil where there is none. It steps in where the API server refuses
// the new one.
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

// forgetLastGood lets go of the last good generation of policies whose new one is
// carried by now.
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

// Only plans some policies of the state and no others, to find out which of
// them the API server refuses. It has what the plan of all has, but for the
// members.
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

// Named finds the entries of policies, sorted by name.
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
