package status

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

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
	lacks := lack{reason: ReasonSchemaNotReady, message: "no schema"}
	onItsWay := lack{reason: ReasonSchemaNotReady, message: "being read", passing: true}
	lacking := state(yes, no, lacks.reason, lacks.message)
	waiting := state(yes, no, onItsWay.reason, onItsWay.message)
	contested := func(s v1alpha1.WebhookPolicyStatus) v1alpha1.WebhookPolicyStatus {
		s.Conditions = append(slices.Clone(s.Conditions), metav1.Condition{Type: v1alpha1.ConditionContested, Status: yes, Reason: ReasonOverwritten, Message: "rival"})
		return s
	}
	pending := state(yes, no, ReasonPending, "gone")
	tests := map[string]struct {
		before, after v1alpha1.WebhookPolicyStatus
		lack          lack
		want          []string
	}{
		"in force":                     {state(unknown, no, ReasonLoading, "l"), inForce, lack{}, []string{"Normal InForce in force"}},
		"still in force":               {inForce, inForce, lack{}, nil},
		"not in force":                 {inForce, pending, lack{}, []string{"Warning Pending gone"}},
		"contested":                    {inForce, contested(pending), lack{}, []string{"Warning Overwritten rival"}},
		"still contested, put right":   {contested(pending), contested(inForce), lack{}, nil},
		"still contested, changed":     {contested(inForce), contested(pending), lack{}, nil},
		"contested no more":            {contested(inForce), inForce, lack{}, nil},
		"contested no more, put right": {contested(pending), inForce, lack{}, []string{"Normal InForce in force"}},
		"replicas have yet to load it": {inForce, state(yes, no, ReasonWaitingForReplicas, "b"), lack{}, nil},
		"refused":                      {inForce, state(no, no, ReasonInvalid, "syntax"), lack{}, []string{"Warning Invalid syntax"}},
		"new, schemas are being read":  {v1alpha1.WebhookPolicyStatus{}, waiting, onItsWay, nil},
		"changed, schemas likewise":    {inForce, waiting, onItsWay, nil},
		"schemas have been read":       {waiting, inForce, lack{}, []string{"Normal InForce in force"}},
		"schemas are not there at all": {waiting, lacking, lacks, []string{"Warning SchemaNotReady no schema"}},
		"schemas are still not there":  {lacking, lacking, lacks, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			(&Reconciler{Events: recorder}).tell(newPolicy(), tc.before, tc.after, tc.lack)
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
