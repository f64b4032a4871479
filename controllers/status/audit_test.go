package status

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
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
		written, now, want *v1alpha1.AuditStatus
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
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, auditOf(tc.written, tc.now, state)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditedCondition(t *testing.T) {
	missing := []string{"a", "b"}
	tests := map[string]struct {
		result *v1alpha1.AuditStatus
		want   string
	}{
		"not evaluated yet": {},
		"everything":        {&v1alpha1.AuditStatus{Summary: "0"}, "True Complete: every stored object that the policy matches is evaluated"},
		"not auditable":     {&v1alpha1.AuditStatus{Summary: "n/a", Missing: missing}, "False NotAuditable: a; b"},
		"no access":         {&v1alpha1.AuditStatus{Summary: "no access", Missing: missing}, "False NoAccess: a; b"},
		"incomplete":        {&v1alpha1.AuditStatus{Summary: "≥ 2", Missing: missing}, "False Incomplete: a; b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := auditedCondition(tc.result)
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
