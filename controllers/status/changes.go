package status

import (
	"context"
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/backends"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
)

// changeDetector remembers what was known of every policy, so that a change of one among
// thousands is not a reason to look at the status of all of them.
type changeDetector struct {
	known map[types.UID]known
}

// known is everything that a status is made of, but for the policy itself: the
// cache tells of its changes.
type known struct {
	generation int64
	facts      facts
	webhooks   []v1alpha1.WebhookReference
	types      *admissionregistrationv1.TypeChecking
	backend    *backends.Report
}

// changed gives the names of the policies of which anything else is known than the
// last time.
func (n *changeDetector) changed(state *policies.State, beside func(*v1alpha1.WebhookPolicy) inputs) []string {
	var names []string
	now := make(map[types.UID]known, len(state.Entries))
	for uid, e := range state.Entries {
		b := beside(e.Policy)
		k := known{generation: e.Policy.Generation, types: b.types, backend: b.backend}
		k.facts, k.webhooks = gather(e.Policy, state, b)
		if before, ok := n.known[uid]; !ok || !reflect.DeepEqual(before, k) {
			names = append(names, e.Policy.Name)
		}
		now[uid] = k
	}
	n.known = now
	return names
}

// enqueueChanged enqueues the policies of which something new is known, the first
// time all of them.
func (r *Reconciler) enqueueChanged() func(events.Queue) {
	var n changeDetector
	look := func(p *v1alpha1.WebhookPolicy) inputs { return r.inputs(context.Background(), p) } // what is asked is in memory
	return func(q events.Queue) {
		state := r.Store.State()
		if state == nil {
			return
		}
		for _, name := range n.changed(state, look) {
			q.Add(request(name))
		}
	}
}
