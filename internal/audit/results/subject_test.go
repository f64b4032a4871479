package results

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

// Each result names the generation whose numbers it has.
func TestSummariesNameTheirGeneration(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 1)
	at := func(seconds int64) *metav1.Time { return ptr.To(metav1.Unix(1_000_000+seconds, 0)) }
	scan := func() { a.pass() }
	fail := func() { a.Fail(a.Next(a.now, time.Hour), Failure{Message: "m", RetryAt: a.now}) }
	refuse := func() { a.Fail(a.Next(a.now, time.Hour), Failure{Message: "m", RetryAt: a.now, Denied: true}) }
	first, second, third := Subject{UID: "u", Generation: 1}, Subject{UID: "u", Generation: 2}, Subject{UID: "u", Generation: 3}
	another := Subject{UID: "v", Generation: 3}
	denied := func(time *metav1.Time) *v1alpha1.AuditStatus {
		return &v1alpha1.AuditStatus{
			Summary: "1", Violations: ptr.To[int64](1), Objects: 1, Time: time, Examples: []string{"configmaps a/object-0000: v"},
		}
	}
	allowed := func(time *metav1.Time) *v1alpha1.AuditStatus {
		return &v1alpha1.AuditStatus{Summary: "0", Violations: ptr.To[int64](0), Objects: 1, Time: time}
	}
	var known map[string]Summary
	for _, step := range []struct {
		name     string
		subject  Subject
		params   uint64
		decision policy.Decision
		do       func()
		want     map[string]Summary
	}{
		{name: "a new policy", subject: first, want: map[string]Summary{}},
		{name: "its scan", subject: first, decision: policy.DecisionDeny, do: scan, want: map[string]Summary{"p": {first, denied(at(2))}}},
		{name: "a new generation", subject: second, want: map[string]Summary{"p": {first, denied(at(2))}}},
		{
			name: "its list fails", subject: second, do: fail,
			want: map[string]Summary{"p": {second, &v1alpha1.AuditStatus{Summary: "≥ 0", Missing: []string{"m"}}}},
		},
		{
			name: "its list is forbidden", subject: second, do: refuse,
			want: map[string]Summary{"p": {second, &v1alpha1.AuditStatus{Summary: "no access", Missing: []string{"m"}}}},
		},
		{
			name: "the scan of the new generation", subject: second, decision: policy.DecisionAllow, do: scan,
			want: map[string]Summary{"p": {second, allowed(at(6))}},
		},
		{name: "a changed param", subject: second, params: 1, want: map[string]Summary{"p": {second, allowed(at(6))}}},
		{
			name: "its list fails, too", subject: second, params: 1, do: fail,
			want: map[string]Summary{"p": {second, &v1alpha1.AuditStatus{Summary: "≥ 0", Objects: 1, Time: at(6), Missing: []string{"m"}}}},
		},
		{name: "a generation that is not evaluated", subject: third, do: func() {
			a.Set(nil)
			a.SetProblems(map[string]Problem{"p": {Subject: third, Why: "w"}})
		}, want: map[string]Summary{"p": {third, &v1alpha1.AuditStatus{Summary: "n/a", Missing: []string{"w"}}}}},
		{name: "another policy of this name", subject: another, do: func() {
			a.SetProblems(nil)
		}, want: map[string]Summary{"p": {third, &v1alpha1.AuditStatus{Summary: "n/a", Missing: []string{"w"}}}}},
		{
			name: "the scan of the other policy", subject: another, decision: policy.DecisionDeny, do: scan,
			want: map[string]Summary{"p": {another, denied(at(11))}},
		},
	} {
		a.now = a.now.Add(time.Second)
		a.decide["p"] = step.decision
		a.Set(map[schema.GroupVersionResource]Resource{configMaps: {
			Kind:     schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Policies: map[string]Version{"p": {Subject: step.subject, Params: step.params}},
		}})
		if step.do != nil {
			step.do()
		}
		known = a.Snapshot().Summaries(known)
		if diff := cmp.Diff(step.want, known); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
