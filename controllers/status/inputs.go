package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/rehearsal"
)

// inputs holds the inputs of a status that do not come from the store of policies.
type inputs struct {
	missing missingDependency
	// absentParams says what happens to requests because params do not exist.
	absentParams string
	lookups      lookupsInput
	// waitReason names the replica that the registration waits for.
	waitReason string
	// propagating says that API servers may still use the previous configuration.
	propagating bool
	// notReady names a replica that cannot answer for a policy yet. It may be nil.
	notReady func(*policies.Entry) string
	// certificateProblem says why there is no serving certificate.
	certificateProblem string
	// reachable is the condition Reachable, nil if nothing tests it.
	reachable *metav1.Condition
	// caReady is the condition CAReady, nil for a policy without a backend.
	caReady *metav1.Condition
	types   *admissionregistrationv1.TypeChecking
	// audits says that the audit runs, and audit is its last result, which can be about an earlier
	// generation.
	audits bool
	audit  results.Summary
	// rehearsed is nil if this leader has not rehearsed the policy.
	rehearsed *rehearsal.Result
	// rules are those that match no request.
	rules unmatched
	// otherManagers describes the clients that keep changing generated configurations, by
	// name of the configuration.
	otherManagers map[string]string
}

// missingDependency is an object or schema that a policy needs and that is not
// available.
type missingDependency struct {
	reason, message string
	transient       bool // it is being read
}

// addMissing adds a missing dependency. The first one is reported.
func (in *inputs) addMissing(m missingDependency) {
	if in.missing == (missingDependency{}) {
		in.missing = m
	}
}

// conflict names the clients that keep changing the configurations of a policy.
func (in *inputs) conflict(policy string, plan registration.Plan) string {
	if len(in.otherManagers) == 0 {
		return ""
	}
	var out []string
	for i := range plan.Groups {
		group := &plan.Groups[i]
		otherManager := in.otherManagers[group.Configuration.GetName()]
		if _, member := slices.BinarySearch(group.Members, policy); otherManager != "" && member {
			out = append(out, fmt.Sprintf(
				"%s keeps changing %s, and Ostiary restores it with increasing back-off: stop that client from managing it",
				otherManager, group.Configuration.GetName()))
		}
	}
	return strings.Join(out, "; ")
}

func (r *Reconciler) inputs(ctx context.Context, p *v1alpha1.WebhookPolicy) inputs {
	var in inputs
	for _, s := range r.Sources {
		s.observe(ctx, p, &in)
	}
	return in
}

// changes returns a channel that receives after each change of an input of all statuses, until ctx
// ends.
func (r *Reconciler) changes(ctx context.Context) <-chan struct{} {
	subscriptions := []func(context.Context) <-chan struct{}{r.Store.Subscribe}
	for _, s := range r.Sources {
		if s.concerns == nil {
			subscriptions = append(subscriptions, s.subscribe)
		}
	}
	return events.Merge(ctx, subscriptions...)
}
