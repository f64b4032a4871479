package status

import (
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
	enforced := state(yes, yes, ReasonEnforced, "enforced")
	missing := missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}
	transient := missingDependency{reason: ReasonSchemaNotReady, message: "being read", transient: true}
	missed := state(yes, no, missing.reason, missing.message)
	waiting := state(yes, no, transient.reason, transient.message)
	conflict, conflictPending := state(yes, yes, ReasonConflict, "enforced; other"), state(yes, no, ReasonConflict, "gone; other")
	pending := state(yes, no, ReasonPending, "gone")
	next := func(s v1alpha1.WebhookPolicyStatus) v1alpha1.WebhookPolicyStatus {
		s.ObservedGeneration = 1
		return s
	}
	tests := map[string]struct {
		before, after v1alpha1.WebhookPolicyStatus
		missing       missingDependency
		want          []string
	}{
		"enforced": {
			before:  state(unknown, no, ReasonPending, "l"),
			after:   enforced,
			missing: missingDependency{},
			want:    []string{"Normal Enforced enforced"},
		},
		"still enforced": {before: enforced, after: enforced, missing: missingDependency{}},
		"enforced otherwise": {
			before:  enforced,
			after:   next(state(yes, yes, ReasonEnforced, "other effect")),
			missing: missingDependency{},
			want:    []string{"Normal Enforced other effect"},
		},
		"not enforced": {
			before:  enforced,
			after:   pending,
			missing: missingDependency{},
			want:    []string{"Warning Pending gone"},
		},
		"a conflict": {
			before:  enforced,
			after:   conflictPending,
			missing: missingDependency{},
			want:    []string{"Warning Conflict gone; other"},
		},
		"still a conflict, restored": {before: conflictPending, after: conflict, missing: missingDependency{}},
		"still a conflict, changed":  {before: conflict, after: conflictPending, missing: missingDependency{}},
		"the conflict ended":         {before: conflict, after: enforced, missing: missingDependency{}},
		"the conflict ended, restored": {
			before:  conflictPending,
			after:   enforced,
			missing: missingDependency{},
			want:    []string{"Normal Enforced enforced"},
		},
		"replicas have yet to load it": {
			before:  enforced,
			after:   state(yes, no, ReasonWaitingForReplicas, "b"),
			missing: missingDependency{},
		},
		"a new generation is pending": {before: enforced, after: next(pending), missing: missingDependency{}},
		"refused": {
			before:  enforced,
			after:   state(no, no, ReasonInvalid, "syntax"),
			missing: missingDependency{},
			want:    []string{"Warning Invalid syntax"},
		},
		"new, schemas are being read": {before: v1alpha1.WebhookPolicyStatus{}, after: waiting, missing: transient},
		"changed, schemas likewise":   {before: enforced, after: waiting, missing: transient},
		"schemas have been read": {
			before:  waiting,
			after:   enforced,
			missing: missingDependency{},
			want:    []string{"Normal Enforced enforced"},
		},
		"schemas do not exist": {
			before:  waiting,
			after:   missed,
			missing: missing,
			want:    []string{"Warning SchemaNotReady no schema"},
		},
		"schemas still do not exist": {before: missed, after: missed, missing: missing},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			(&Reconciler{Events: recorder}).recordEvents(newPolicy(), tc.before, tc.after, tc.missing)
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

// TestRepairWait follows a policy that is registered until another client edits its
// configuration.
func TestRepairWait(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	r := &Reconciler{Clock: clock}
	status := func(registered metav1.ConditionStatus, reason string, generation int64) v1alpha1.WebhookPolicyStatus {
		return v1alpha1.WebhookPolicyStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionRegistered, Status: registered, Reason: reason, ObservedGeneration: generation},
		}}
	}
	p := newPolicy()
	p.Generation = 2
	registered := status(metav1.ConditionTrue, ReasonRegistered, 2)
	edited := status(metav1.ConditionFalse, ReasonPending, 2)
	for _, step := range []struct {
		name           string
		after          time.Duration // the step before
		have, observed v1alpha1.WebhookPolicyStatus
		want           time.Duration
	}{
		{"registered", 0, registered, registered, 0},
		{"edited", time.Second, registered, edited, repairGrace},
		{"still edited", time.Second, registered, edited, repairGrace - time.Second},
		{"repaired", 500 * time.Millisecond, registered, registered, 0},
		{"edited again", 500 * time.Millisecond, registered, edited, repairGrace},
		{"edited for long", repairGrace, registered, edited, 0},
		{"edited, which is reported", time.Second, edited, edited, 0},
		{"edited a third time", time.Second, registered, edited, repairGrace},
		{"refused", 0, registered, status(metav1.ConditionFalse, ReasonRefused, 2), 0},
		{"of a generation that has not been registered yet", 0, status(metav1.ConditionTrue, ReasonRegistered, 1), edited, 0},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		p.Status = step.have
		if got := r.repairWait(p, step.observed); got != step.want {
			t.Errorf("%s: waits for %s, want %s", step.name, got, step.want)
		}
	}
}
