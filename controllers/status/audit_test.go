package status

import (
	"cmp"
	"fmt"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/rehearsal"
)

func TestAuditOf(t *testing.T) {
	at := func(seconds, violations int64) *v1alpha1.AuditStatus {
		return &v1alpha1.AuditStatus{Time: ptr.To(metav1.Unix(seconds, 0)), Violations: ptr.To(violations), Missing: []string{}}
	}
	unfinished := &v1alpha1.AuditStatus{Missing: []string{"the params are being listed"}}
	state := &policies.State{Entries: map[types.UID]*policies.Entry{}}
	for i := range 100 { // 500 s
		state.Entries[types.UID(strconv.Itoa(i))] = nil
	}
	tests := map[string]struct {
		isOff              bool
		written, now, want *v1alpha1.AuditStatus
		observed           int64 // generation of the written condition; 2 by default
		subject            results.Subject
	}{
		"nothing":                   {},
		"the first result":          {now: at(1000, 1), want: at(1000, 1)},
		"a leader without a result": {written: at(1000, 1), want: at(1000, 1)},
		"another result":            {written: at(1000, 1), now: at(1001, 2), want: at(1001, 2)},
		"a later time":              {written: at(1000, 1), now: at(1499, 1), want: at(1000, 1)},
		"a much later time":         {written: at(1000, 1), now: at(1500, 1), want: at(1500, 1)},
		"a result without a time":   {written: at(1000, 1), now: unfinished, want: unfinished},
		"a time for the first time": {written: unfinished, now: at(1000, 1), want: at(1000, 1)},
		"an earlier time":           {written: at(1000, 1), now: at(900, 1), want: at(1000, 1)},
		"the audit does not run":    {isOff: true, written: at(1000, 1)},
		"a new generation":          {written: at(1000, 1), observed: 1, now: at(1000, 1), subject: results.Subject{UID: "uid", Generation: 1}},
		"a new generation that no leader has evaluated": {written: at(1000, 1), observed: 1},
		"a result of an earlier generation, and a written one of this": {
			written: at(1000, 1), now: at(900, 2), subject: results.Subject{UID: "uid", Generation: 1}, want: at(1000, 1),
		},
		"a later time of a new generation":       {written: at(1000, 1), observed: 1, now: at(1001, 1), want: at(1001, 1)},
		"a result of another policy of the name": {now: at(1000, 1), subject: results.Subject{UID: "other", Generation: 2}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{UID: "uid", Generation: 2}}
			if tc.written != nil {
				p.Status.Audit = tc.written
				p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAudited, ObservedGeneration: cmp.Or(tc.observed, 2)}}
			}
			in := &inputs{audits: !tc.isOff}
			if tc.now != nil {
				in.audit = results.Summary{Subject: cmp.Or(tc.subject, results.SubjectOf(p)), Status: tc.now}
			}
			if diff := gocmp.Diff(tc.want, auditOf(p, in, state)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Until stored objects are evaluated, the status of a new generation has neither the numbers of the
// previous one nor its effect on findings of the rehearsal.
func TestStatusOfNewGeneration(t *testing.T) {
	p := newPolicy()
	p.Generation = 1
	denies := &rehearsal.Result{Warnings: []advice.Warning{{Field: "f", Text: "t", Kind: advice.DeniesAll}}}
	passing := &v1alpha1.AuditStatus{Summary: "0", Violations: new(int64), Objects: 1}
	const (
		pending  = "Unknown Pending: this generation has not been evaluated on all stored objects yet"
		complete = "True Complete: every stored object that the policy matches is evaluated"
	)
	for _, step := range []struct {
		name                       string
		generation, evaluated      int64
		want                       *v1alpha1.AuditStatus
		wantAudited, wantRehearsed string
	}{
		{"a new policy", 1, 0, nil, pending, "False Findings"},
		{"its scan", 1, 1, passing, complete, "True Complete"},
		{"a new generation", 2, 1, nil, pending, "False Findings"},
		{"another leader", 2, 0, nil, pending, "False Findings"},
		{"the scan of the new generation", 2, 2, passing, complete, "True Complete"},
		{"a third leader", 2, 0, passing, complete, "True Complete"},
	} {
		p.Generation = step.generation
		in := inputs{audits: true, rehearsed: denies}
		if step.evaluated > 0 {
			in.audit = results.Summary{Subject: results.Subject{UID: p.UID, Generation: step.evaluated}, Status: passing}
		}
		p.Status = observe(p, nil, in, &stages{}, now)
		audited, rehearsed := find(p.Status, v1alpha1.ConditionAudited), find(p.Status, v1alpha1.ConditionRehearsed)
		if got := fmt.Sprintf("%s %s: %s", audited.Status, audited.Reason, audited.Message); got != step.wantAudited {
			t.Errorf("%s: Audited is %q, want %q", step.name, got, step.wantAudited)
		}
		if got := string(rehearsed.Status) + " " + rehearsed.Reason; got != step.wantRehearsed {
			t.Errorf("%s: Rehearsed is %q, want %q", step.name, got, step.wantRehearsed)
		}
		if diff := gocmp.Diff(step.want, p.Status.Audit); diff != "" {
			t.Errorf("%s: audit (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestAuditedCondition(t *testing.T) {
	missing := []string{"a", "b"}
	const (
		pending  = "Unknown Pending: this generation has not been evaluated on all stored objects yet"
		complete = "True Complete: every stored object that the policy matches is evaluated"
	)
	tests := map[string]struct {
		isOff    bool
		enforced int64 // generation; 2 by default
		result   *v1alpha1.AuditStatus
		want     string
	}{
		"the audit does not run": {isOff: true},
		"not evaluated yet":      {want: pending},
		"another generation is enforced": {
			enforced: 1, want: pending + "; until then generation 1 stays enforced",
		},
		"everything": {
			result: &v1alpha1.AuditStatus{Summary: "0"}, want: complete,
		},
		"not auditable": {result: &v1alpha1.AuditStatus{Summary: "n/a", Missing: missing}, want: "False NotAuditable: a; b"},
		"no access":     {result: &v1alpha1.AuditStatus{Summary: "no access", Missing: missing}, want: "False NoAccess: a; b"},
		"incomplete":    {result: &v1alpha1.AuditStatus{Summary: "≥ 2", Missing: missing}, want: "False Incomplete: a; b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			c := auditedCondition(p, &observation{enforced: cmp.Or(tc.enforced, 2)}, !tc.isOff, tc.result)
			got := ""
			if c.Status != "" {
				got = string(c.Status) + " " + c.Reason + ": " + c.Message
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
