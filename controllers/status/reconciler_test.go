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
	enforcing := state(yes, yes, ReasonEnforcing, "denied")
	lacks := missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}
	onItsWay := missingDependency{reason: ReasonSchemaNotReady, message: "being read", temporary: true}
	lacking := state(yes, no, lacks.reason, lacks.message)
	waiting := state(yes, no, onItsWay.reason, onItsWay.message)
	conflicting := func(s v1alpha1.WebhookPolicyStatus) v1alpha1.WebhookPolicyStatus {
		s.Conditions = slices.Clone(s.Conditions)
		s.Conditions[1].Message = "x keeps changing it; " + s.Conditions[1].Message
		return s
	}
	pending := state(yes, no, ReasonPending, "gone")
	tests := map[string]struct {
		before, after v1alpha1.WebhookPolicyStatus
		lack          missingDependency
		conflict      string
		want          []string
	}{
		"enforcing":                    {before: state(unknown, no, ReasonLoading, "l"), after: enforcing, want: []string{"Normal Enforcing denied"}},
		"still enforcing":              {before: enforcing, after: enforcing},
		"not enforcing":                {before: enforcing, after: pending, want: []string{"Warning Pending gone"}},
		"conflict":                     {before: enforcing, after: conflicting(pending), conflict: "x keeps changing it", want: []string{"Warning Overwritten x keeps changing it"}},
		"conflict, restored":           {before: conflicting(pending), after: conflicting(enforcing), conflict: "x keeps changing it"},
		"conflict, changed":            {before: conflicting(enforcing), after: conflicting(pending), conflict: "x keeps changing it"},
		"conflict ends":                {before: conflicting(enforcing), after: enforcing},
		"conflict ends, restored":      {before: conflicting(pending), after: enforcing, want: []string{"Normal Enforcing denied"}},
		"waiting for replicas":         {before: enforcing, after: state(yes, no, ReasonWaitingForReplicas, "b")},
		"refused":                      {before: enforcing, after: state(no, no, ReasonInvalid, "syntax"), want: []string{"Warning Invalid syntax"}},
		"new, schemas are being read":  {after: waiting, lack: onItsWay},
		"changed, schemas likewise":    {before: enforcing, after: waiting, lack: onItsWay},
		"schemas have been read":       {before: waiting, after: enforcing, want: []string{"Normal Enforcing denied"}},
		"schemas are not there at all": {before: waiting, after: lacking, lack: lacks, want: []string{"Warning SchemaNotReady no schema"}},
		"schemas are still not there":  {before: lacking, after: lacking, lack: lacks},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			(&Reconciler{Events: recorder}).recordEvents(newPolicy(), tc.before, tc.after, tc.lack, tc.conflict)
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
