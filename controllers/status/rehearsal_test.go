package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/rehearsal"
)

func TestRehearsedCondition(t *testing.T) {
	finding := advice.Warning{Field: "spec.validations[0].expression", Text: "can fail"}
	const denial = "f: CREATE of pods is denied for every object that was tried"
	denies := &rehearsal.Result{Warnings: []advice.Warning{{Field: "f", Text: denial[3:], Kind: advice.DeniesAll}}}
	many := make([]advice.Warning, maxFindings+2)
	for i := range many {
		many[i] = advice.Warning{Field: "f", Text: fmt.Sprint(i)}
	}
	written := func(generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionRehearsed, Status: metav1.ConditionTrue, Reason: "Written",
			ObservedGeneration: generation}}
	}
	tests := map[string]struct {
		written []metav1.Condition
		result  *rehearsal.Result
		stored  *v1alpha1.AuditStatus
		want    string
	}{
		"not rehearsed yet": {},
		"a policy from before an upgrade": {
			written: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, ObservedGeneration: 2}},
		},
		"rehearsed by an earlier leader":      {written: written(2), want: "True Written: "},
		"an earlier generation was rehearsed": {written: written(1)},
		"rehearsed again": {
			written: written(2),
			result:  &rehearsal.Result{},
			want:    "True Complete: no request was found that fails with an error or goes around the policy",
		},
		"a finding": {
			result: &rehearsal.Result{Warnings: []advice.Warning{finding}},
			want:   "False Findings: spec.validations[0].expression: can fail",
		},
		"a limit": {
			result: &rehearsal.Result{Stopped: "the time for it ended"},
			want:   "False Incomplete: not rehearsed: the time for it ended",
		},
		"a finding before a limit": {
			result: &rehearsal.Result{
				Warnings: []advice.Warning{finding},
				Stopped:  "the time for it ended",
				Omitted:  []string{"some kinds"},
			},
			want: "False Findings: spec.validations[0].expression: can fail; not rehearsed: the time for it ended; some kinds",
		},
		"kinds that are not known": {
			result: &rehearsal.Result{Omitted: []string{"some kinds"}},
			want:   "False Incomplete: not rehearsed: some kinds",
		},
		"more findings than a message contains": {
			result: &rehearsal.Result{Warnings: many},
			want:   "False Findings: f: 0; f: 1; f: 2; f: 3; f: 4; f: 5; f: 6; f: 7; f: 8; f: 9; 2 more: run kubectl ostiary lint",
		},
		"denials, and nothing is stored": {
			result: denies,
			stored: &v1alpha1.AuditStatus{Violations: new(int64)},
			want:   "False Findings: " + denial,
		},
		"denials, and all stored objects are denied": {result: denies,
			stored: &v1alpha1.AuditStatus{Violations: new(int64(1)), Objects: 3, ViolationsOnCreate: 1, Errors: 1},
			want:   "False Findings: " + denial},
		"denials, and a stored object passes": {
			result: denies,
			stored: &v1alpha1.AuditStatus{Violations: new(int64(1)), Objects: 2},
			want:   "True Complete: no request was found that fails with an error or goes around the policy",
		},
		"denials, and some objects could not be read": {
			result: denies,
			stored: &v1alpha1.AuditStatus{Objects: 2},
			want:   "False Findings: " + denial,
		},
		"another finding, while a stored object passes": {
			result: &rehearsal.Result{Warnings: []advice.Warning{finding}},
			stored: &v1alpha1.AuditStatus{Violations: new(int64), Objects: 2},
			want:   "False Findings: spec.validations[0].expression: can fail",
		},
		"a long finding": {result: &rehearsal.Result{Warnings: []advice.Warning{{Field: "f", Text: strings.Repeat("x", 1000)}}},
			want: "False Findings: f: " + strings.Repeat("x", maxFinding-len("f: ...")) + "..."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			p.Status.Conditions = tc.written
			got := ""
			if c := rehearsedCondition(p, tc.result, tc.stored); c.Status != "" {
				got = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
