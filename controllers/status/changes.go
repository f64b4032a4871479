package status

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/rehearsal"
)

// changeDetector stores the inputs of every policy's status, so that a change for
// one of thousands of policies does not reconcile all of them.
type changeDetector struct {
	mu    sync.Mutex
	known map[types.UID]*known
}

// known holds the inputs of a status except the policy, whose changes the cache
// reports.
type known struct {
	generation  int64
	loaded      string // the version: another one can be that of a step of a rollout
	observation observation
	webhooks    []v1alpha1.WebhookReference
	types       *admissionregistrationv1.TypeChecking
	audit       results.Summary
	rehearsed   *rehearsal.Result
}

// changed returns the names of the policies whose inputs differ from the last call, and
// separately those of which only the result of the audit differs. It compares those that a change
// concerns.
func (d *changeDetector) changed(state *policies.State, concerns func(*v1alpha1.WebhookPolicy) bool,
	inputsOf func(*v1alpha1.WebhookPolicy) inputs) (names, audited []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = make(map[types.UID]*known, len(state.Entries))
	}
	k := new(known) // one for all: with thousands of policies, few have changed
	for uid, e := range state.Entries {
		if !concerns(e.Policy) {
			continue
		}
		in := inputsOf(e.Policy)
		*k = known{generation: e.Policy.Generation, loaded: e.LoadedVersion(), types: in.types, audit: in.audit, rehearsed: in.rehearsed}
		k.observation, k.webhooks = gather(e.Policy, state, in)
		before := d.known[uid]
		if before != nil && reflect.DeepEqual(before, k) {
			continue
		}
		changed := *k
		d.known[uid] = &changed
		if before != nil {
			before.audit = k.audit
		}
		if before != nil && reflect.DeepEqual(before, k) {
			audited = append(audited, e.Policy.Name)
		} else {
			names = append(names, e.Policy.Name)
		}
	}
	maps.DeleteFunc(d.known, func(uid types.UID, _ *known) bool { return state.Entries[uid] == nil })
	return names, audited
}

// pauseFactor is the pause before a comparison, in durations of the last one, up to
// maxPause: the inputs change many times while a replica starts, and comparing those of
// thousands of policies takes long.
const (
	pauseFactor = 4
	maxPause    = 2 * time.Second
)

// auditInterval is the interval between two writes of results of the audit, which change
// for all policies at the end of a scan. API servers would delay other requests otherwise.
// It is shorter for more policies than can be written within auditPeriod.
const (
	auditInterval = 500 * time.Millisecond
	auditPeriod   = 10 * time.Minute
)

// auditDelay returns when to write the result of a policy, of so many.
func auditDelay(policy, policies int) time.Duration {
	return time.Duration(policy) * min(auditInterval, auditPeriod/time.Duration(policies))
}

// enqueueChanged enqueues the policies whose inputs have changed, of those that a change concerns: all
// of them at the first call.
func (r *Reconciler) enqueueChanged(d *changeDetector, concerns func(*v1alpha1.WebhookPolicy) bool) func(events.Queue) {
	inputsOf := func(p *v1alpha1.WebhookPolicy) inputs { return r.inputs(context.Background(), p) } // reads memory only
	var took time.Duration
	return func(q events.Queue) {
		time.Sleep(min(pauseFactor*took, maxPause))
		start := time.Now()
		defer func() { took = time.Since(start) }()
		state := r.Store.State()
		if state == nil {
			return
		}
		names, audited := d.changed(state, concerns, inputsOf)
		for _, name := range names {
			q.Add(request(name))
		}
		for i, name := range audited {
			q.AddAfter(request(name), auditDelay(i, len(audited)))
		}
	}
}
