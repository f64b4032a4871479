package status

import (
	"context"
	"maps"
	"reflect"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
)

// changeDetector stores the inputs of every policy's status, so that a change for
// one of thousands of policies does not reconcile all of them.
type changeDetector struct {
	known map[types.UID]*known
}

// known holds the inputs of a status except the policy, whose changes the cache
// reports.
type known struct {
	generation  int64
	observation observation
	webhooks    []v1alpha1.WebhookReference
	types       *admissionregistrationv1.TypeChecking
	audit       *v1alpha1.AuditStatus
}

// changed returns the names of the policies whose inputs differ from the last call.
func (d *changeDetector) changed(state *policies.State, inputsOf func(*v1alpha1.WebhookPolicy) inputs) []string {
	if d.known == nil {
		d.known = make(map[types.UID]*known, len(state.Entries))
	}
	var names []string
	k := new(known) // one for all: with thousands of policies, few have changed
	for uid, e := range state.Entries {
		in := inputsOf(e.Policy)
		*k = known{generation: e.Policy.Generation, types: in.types, audit: in.audit}
		k.observation, k.webhooks = gather(e.Policy, state, in)
		if before := d.known[uid]; before == nil || !reflect.DeepEqual(before, k) {
			names = append(names, e.Policy.Name)
			changed := *k
			d.known[uid] = &changed
		}
	}
	maps.DeleteFunc(d.known, func(uid types.UID, _ *known) bool { return state.Entries[uid] == nil })
	return names
}

// pauseFactor is the pause before a comparison, in durations of the last one, up to
// maxPause: the inputs change many times while a replica starts, and comparing those of
// thousands of policies takes long.
const (
	pauseFactor = 4
	maxPause    = 2 * time.Second
)

// enqueueChanged enqueues the policies whose inputs have changed, all of them at
// the first call.
func (r *Reconciler) enqueueChanged() func(events.Queue) {
	var d changeDetector
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
		for _, name := range d.changed(state, inputsOf) {
			q.Add(request(name))
		}
		r.unmatched.forget(func(uid types.UID) bool { return state.Entries[uid] != nil })
	}
}
