package results

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	var known Snapshot
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
		}, want: map[string]Summary{}},
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
		known = a.Snapshot().After(known)
		if diff := cmp.Diff(step.want, known.Summaries()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// rowsOf returns the lines of reports, each with what says to which generation it belongs.
func rowsOf(t *testing.T, s Snapshot) (out []string) {
	t.Helper()
	for _, report := range s.Reports() {
		parts, err := report.Parts()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			list, _, _ := unstructured.NestedSlice(part.Object, "results")
			for _, item := range list {
				line := item.(map[string]any)
				about := line["message"]
				if objects, ok := line["resources"].([]any); ok {
					about = objects[0].(map[string]any)["name"]
				}
				out = append(out, fmt.Sprint(line["result"], " ", line["properties"], " ", about))
			}
		}
	}
	return out
}

// During a scan, the verdicts are of two generations: those of one are shown, or none.
func TestResultsAreOfOneGeneration(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 3)
	set := func(of Subject, params uint64) {
		a.Set(map[schema.GroupVersionResource]Resource{configMaps: {
			Kind:     schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Policies: map[string]Version{"p": {Subject: of, Params: params}},
		}})
	}
	var pass *Pass
	begin := func() {
		pass = a.Next(a.now, time.Hour)
		a.visit(pass, a.objects[:2])
	}
	finish := func() {
		a.visit(pass, a.objects[2:])
		a.Finish(pass, 0, a.now)
	}
	fail := func() { a.Fail(pass, Failure{Message: "m", RetryAt: a.now}) }
	of := func(generation string, names ...string) (out []string) {
		for _, name := range names {
			out = append(out, "fail map[generation:"+generation+" operation:UPDATE] object-000"+name)
		}
		return out
	}
	waits := func(generation, rest string) string {
		return "skip map[reason:Pending] generation " + generation + " has not been evaluated on all stored objects yet" + rest
	}
	incomplete := []string{"skip map[reason:Incomplete] m"}
	first, second := Subject{UID: "u", Generation: 1}, Subject{UID: "u", Generation: 2}
	third, another := Subject{UID: "u", Generation: 3}, Subject{UID: "v", Generation: 1}
	beside := func(pending string, rows []string) []string { return append([]string{pending}, rows...) }
	all := map[Pair]Counts{{"p", "a"}: {Violated: 3}}
	none := map[Pair]Counts{}
	var known Snapshot
	for _, step := range []struct {
		name       string
		subject    Subject
		params     uint64
		decision   policy.Decision
		do         func()
		wantRows   []string
		wantCounts map[Pair]Counts
	}{
		{"the first scan", first, 0, policy.DecisionDeny, begin, []string{waits("1", "")}, none},
		{"its end", first, 0, policy.DecisionDeny, finish, of("1", "0", "1", "2"), all},
		{
			"a new generation", second, 0, policy.DecisionAllow, begin,
			beside(waits("2", ": the results are of generation 1"), of("1", "0", "1", "2")), all,
		},
		{"its list fails", second, 0, policy.DecisionAllow, fail, incomplete, none},
		{"it is begun again", second, 0, policy.DecisionAllow, begin, incomplete, none},
		{"the end of its scan", second, 0, policy.DecisionAllow, finish, nil, map[Pair]Counts{{"p", "a"}: {Passed: 3}}},
		{"a changed param", second, 1, policy.DecisionDeny, begin, nil, map[Pair]Counts{{"p", "a"}: {Passed: 3}}},
		{"the end of the scan with it", second, 1, policy.DecisionDeny, finish, of("2", "0", "1", "2"), all},
		{"another policy of this name", another, 0, policy.DecisionDeny, begin, []string{waits("1", "")}, none},
		{"a change before its first scan has ended", third, 0, policy.DecisionAllow, fail, incomplete, none},
	} {
		a.now = a.now.Add(time.Second)
		a.decide["p"] = step.decision
		set(step.subject, step.params)
		step.do()
		known = a.Snapshot().After(known)
		if diff := cmp.Diff(step.wantRows, rowsOf(t, known)); diff != "" {
			t.Errorf("%s: rows (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.wantCounts, known.Counts); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", step.name, diff)
		}
	}
}

// A resource that was never read has no verdicts of an earlier generation, so the numbers stay.
func TestUnreadResourceIsNotMixed(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 3)
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	scan := func() {
		for p := a.Next(a.now, time.Hour); p != nil; p = a.Next(a.now, time.Hour) {
			if p.GVR() == secrets {
				a.Fail(p, Failure{Message: "m", Denied: true, RetryAt: a.now.Add(time.Second)})
				continue
			}
			a.visit(p, a.objects)
			a.Finish(p, 0, a.now)
		}
	}
	var known Snapshot
	for generation := range int64(3) {
		of := Resource{Policies: map[string]Version{"p": {Subject: Subject{UID: "u", Generation: generation + 1}}}}
		a.Set(map[schema.GroupVersionResource]Resource{configMaps: of, secrets: of})
		scan()
		known = a.Snapshot().After(known)
		got := known.Summaries()["p"]
		if got.Subject.Generation != generation+1 || got.Status.Summary != "≥ 3" {
			t.Errorf("generation %d: %q of generation %d, want ≥ 3", generation+1, got.Status.Summary, got.Subject.Generation)
		}
		a.now = a.now.Add(time.Second)
	}
}
