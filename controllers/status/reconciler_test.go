package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestEvents(t *testing.T) {
	state := func(accepted, ready metav1.ConditionStatus, reason, message string) v1alpha1.WebhookPolicyStatus {
		return v1alpha1.WebhookPolicyStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: accepted, Reason: reason, Message: message},
			{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason, Message: message},
		}}
	}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	inForce := state(yes, yes, ReasonInForce, "in force")
	lacks := missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}
	onItsWay := missingDependency{reason: ReasonSchemaNotReady, message: "being read", temporary: true}
	lacking := state(yes, no, lacks.reason, lacks.message)
	waiting := state(yes, no, onItsWay.reason, onItsWay.message)
	contested := func(s v1alpha1.WebhookPolicyStatus) v1alpha1.WebhookPolicyStatus {
		s.Conditions = append(slices.Clone(s.Conditions), metav1.Condition{Type: v1alpha1.ConditionContested, Status: yes, Reason: ReasonOverwritten, Message: "rival"})
		return s
	}
	pending := state(yes, no, ReasonPending, "gone")
	tests := map[string]struct {
		before, after v1alpha1.WebhookPolicyStatus
		lack          missingDependency
		want          []string
	}{
		"in force":                     {state(unknown, no, ReasonLoading, "l"), inForce, missingDependency{}, []string{"Normal InForce in force"}},
		"still in force":               {inForce, inForce, missingDependency{}, nil},
		"not in force":                 {inForce, pending, missingDependency{}, []string{"Warning Pending gone"}},
		"contested":                    {inForce, contested(pending), missingDependency{}, []string{"Warning Overwritten rival"}},
		"still contested, put right":   {contested(pending), contested(inForce), missingDependency{}, nil},
		"still contested, changed":     {contested(inForce), contested(pending), missingDependency{}, nil},
		"contested no more":            {contested(inForce), inForce, missingDependency{}, nil},
		"contested no more, put right": {contested(pending), inForce, missingDependency{}, []string{"Normal InForce in force"}},
		"replicas have yet to load it": {inForce, state(yes, no, ReasonWaitingForReplicas, "b"), missingDependency{}, nil},
		"refused":                      {inForce, state(no, no, ReasonInvalid, "syntax"), missingDependency{}, []string{"Warning Invalid syntax"}},
		"new, schemas are being read":  {v1alpha1.WebhookPolicyStatus{}, waiting, onItsWay, nil},
		"changed, schemas likewise":    {inForce, waiting, onItsWay, nil},
		"schemas have been read":       {waiting, inForce, missingDependency{}, []string{"Normal InForce in force"}},
		"schemas are not there at all": {waiting, lacking, lacks, []string{"Warning SchemaNotReady no schema"}},
		"schemas are still not there":  {lacking, lacking, lacks, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			(&Reconciler{Events: recorder}).recordEvents(newPolicy(), tc.before, tc.after, tc.lack)
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				got = append(got, strings.TrimSpace(e))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWaitsForRepairs follows a policy that is registered until somebody edits
// what carries it.
func TestWaitsForRepairs(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	r := &Reconciler{Clock: clock}
	status := func(registered metav1.ConditionStatus, reason string, generation int64) v1alpha1.WebhookPolicyStatus {
		return v1alpha1.WebhookPolicyStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionRegistered, Status: registered, Reason: reason, ObservedGeneration: generation},
		}}
	}
	p := newPolicy()
	p.Generation = 2
	carried := status(metav1.ConditionTrue, ReasonRegistered, 2)
	edited := status(metav1.ConditionFalse, ReasonPending, 2)
	for _, step := range []struct {
		name      string
		after     time.Duration // the step before
		have, see v1alpha1.WebhookPolicyStatus
		want      time.Duration
	}{
		{"as it should be", 0, carried, carried, 0},
		{"edited", time.Second, carried, edited, repairGrace},
		{"still edited", time.Second, carried, edited, repairGrace - time.Second},
		{"put right", 500 * time.Millisecond, carried, carried, 0},
		{"edited again", 500 * time.Millisecond, carried, edited, repairGrace},
		{"edited for long", repairGrace, carried, edited, 0},
		{"edited, which is told", time.Second, edited, edited, 0},
		{"edited a third time", time.Second, carried, edited, repairGrace},
		{"refused", 0, carried, status(metav1.ConditionFalse, ReasonRefused, 2), 0},
		{"of a generation that has not been registered yet", 0, status(metav1.ConditionTrue, ReasonRegistered, 1), edited, 0},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		p.Status = step.have
		if got := r.repairWait(p, step.see); got != step.want {
			t.Errorf("%s: waits for %s, want %s", step.name, got, step.want)
		}
	}
}
